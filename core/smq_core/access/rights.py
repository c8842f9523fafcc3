"""What a caller may do, in the terms of Kubernetes RBAC, so that rights are the same for ``smq`` and ``kubectl``.

Producing, consuming and administering are virtual subresources of ``topics`` with the verb ``create``: RBAC, reviews
of access and ``kubectl auth can-i`` take any name there. Whatever changes Topic resources needs the verb that the same
change would need with ``kubectl``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

API_GROUP = "seaweedmq.io"
# Resources in the terms of RBAC.
TOPICS, CONSUMER_GROUPS, BROKERS = "topics", "groups", "brokers"
# How many names of patterns are tried for a group besides its own; each is one review by the API server.
MAX_PATTERNS = 4


class Right(Enum):
    """A right on the messages of a topic. Brokers check the first two by signed grants."""

    PRODUCE = "produce"
    CONSUME = "consume"
    ADMINISTER = "administer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One thing that a caller wants to do. ``name`` is empty for all objects of the namespace."""

    verb: str
    resource: str
    namespace: str
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        named = f' "{self.name}"' if self.name else ""
        where = f' in namespace "{self.namespace}"' if self.namespace else ""
        return f"{self.verb} {what}{named}{where}"


def topic_right(right: Right, topic: str) -> Access:
    """``topic`` is ``namespace/name``."""
    namespace, _, name = topic.partition("/")
    return Access(verb="create", resource=TOPICS, namespace=namespace, name=name, subresource=right.value)


def topic_verb(verb: str, topic: str) -> Access:
    """A verb on the Topic resource itself, such as ``delete``. ``topic`` is ``namespace/name``."""
    namespace, _, name = topic.partition("/")
    return Access(verb=verb, resource=TOPICS, namespace=namespace, name=name)


def group_rights(topic: str, group: str) -> tuple[Access, ...]:
    """The rights to use this consumer group of a topic, each of which is enough. ``topic`` is ``namespace/name``."""
    namespace, _, _ = topic.partition("/")
    return tuple(
        Access(verb="create", resource=CONSUMER_GROUPS, namespace=namespace, name=name, subresource=Right.CONSUME.value)
        for name in group_names(group)
    )


def broker_verb(verb: str) -> Access:
    """A verb on the brokers of the release."""
    return Access(verb=verb, resource=BROKERS, namespace="")


def group_names(group: str) -> tuple[str, ...]:
    """The names under which a right to a consumer group may be given: its own, then patterns, the longest first.

    RBAC knows no prefixes, so a pattern is a literal name: ``team-a.*`` stands for all groups that begin with
    ``team-a.``, and ``*`` for all.
    """
    parts = group.split(".")
    patterns = [".".join([*parts[:count], "*"]) for count in range(len(parts) - 1, 0, -1)]
    return (group, *patterns[: MAX_PATTERNS - 1], "*")
