"""The list of topics as a caller sees it that may list some namespaces only, as with ``kubectl``."""

from __future__ import annotations

from smq_core.access.leader_calls import list_namespace
from smq_operator.security.access.access_control import AccessControl
from smq_operator.security.callers import AccessDecision, Caller
from smq_proto.v1 import admin_pb2


async def visible_topics(listed: admin_pb2.TopicList, caller: Caller, access: AccessControl) -> admin_pb2.TopicList:
    """The topics of namespaces that the caller may list. Problems may name others, so they are left out.

    Raises PermissionDenied if it may list no namespace that has topics.
    """
    allowed: dict[str, AccessDecision] = {}
    for topic in listed.topics:
        if (namespace := _namespace(topic)) not in allowed:
            allowed[namespace] = await access.any_of(caller, [list_namespace(namespace)])
    if allowed and not any(decision.allowed for decision in allowed.values()):
        raise access.denial(caller, [list_namespace("")], next(iter(allowed.values())))
    return admin_pb2.TopicList(topics=[topic for topic in listed.topics if allowed[_namespace(topic)].allowed])


def _namespace(topic: admin_pb2.TopicList.Topic) -> str:
    return topic.info.name.partition("/")[0]
