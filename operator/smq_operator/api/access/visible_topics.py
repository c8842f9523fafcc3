"""The list of topics as a caller sees it that may list some namespaces only, as with ``kubectl``."""

from __future__ import annotations

from collections.abc import Iterable

from smq_core.access.leader_calls import list_namespace
from smq_operator.security.access.access_control import AccessControl
from smq_operator.security.callers import AccessDecision, Caller
from smq_proto.v1 import admin_pb2


async def visible_topics(
    listed: admin_pb2.TopicList, topics: Iterable[str], caller: Caller, access: AccessControl
) -> admin_pb2.TopicList:
    """The topics of namespaces that the caller may list. Problems may name others, so they are left out.

    ``listed`` is a page of all ``topics``. Raises PermissionDenied if it may list no namespace that has topics.
    """
    allowed: dict[str, AccessDecision] = {}
    namespaces = [_namespace(name) for name in topics] + [_namespace(topic.info.name) for topic in listed.topics]
    for namespace in dict.fromkeys(namespaces):
        allowed[namespace] = await access.any_of(caller, [list_namespace(namespace)])
    if allowed and not any(decision.allowed for decision in allowed.values()):
        raise access.denial(caller, [list_namespace("")], next(iter(allowed.values())))
    visible = [topic for topic in listed.topics if allowed[_namespace(topic.info.name)].allowed]
    return admin_pb2.TopicList(topics=visible, next_page_token=listed.next_page_token)


def _namespace(topic: str) -> str:
    return topic.partition("/")[0]
