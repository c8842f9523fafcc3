"""A policy: who has which rights, in rules of the shape of RBAC Roles. For releases without Kubernetes.

A rule names callers by identity or by group, then what they may do::

    identities: [spark]
    namespaces: [travel]
    topics: [flights, weather]
    verbs: [consume, get]
    consumerGroups: ["spark.*"]

``*`` stands for everything in its list; there are no other patterns, except those of :func:`group_names`. What no rule
allows is denied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smq_core.access.rights import BROKERS, CONSUMER_GROUPS, TOPICS, Access, Right
from smq_core.errors import InvalidRequest

ANY = "*"
TOPIC_VERBS = frozenset({"get", "list", "create", "update", "delete", *(right.value for right in Right)})
BROKER_VERBS = frozenset({"list", "update"})
# A file of more rules takes long to search, for every call.
MAX_RULES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """``verbs`` are those on topics, with ``produce``, ``consume`` and ``administer``; ``brokers`` those on brokers."""

    identities: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    consumer_groups: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    brokers: frozenset[str] = frozenset()

    def is_about(self, identity: str, groups: Collection[str]) -> bool:
        return _has(self.identities, identity) or any(group in self.groups for group in groups)

    def allows(self, access: Access) -> bool:
        """An access without a name is one to all objects, which a rule about some of them does not allow."""
        if access.resource == BROKERS:
            return _has(self.brokers, access.verb)
        if not _has(self.verbs, _verb(access)) or not _has(self.namespaces, access.namespace):
            return False
        if access.resource == CONSUMER_GROUPS:
            return _has(self.consumer_groups, access.name)
        return access.resource == TOPICS and _has(self.topics, access.name)


@dataclass(frozen=True, slots=True)
class Policy:
    rules: Sequence[PolicyRule]

    def allows(self, identity: str, groups: Collection[str], access: Access) -> bool:
        return any(rule.is_about(identity, groups) and rule.allows(access) for rule in self.rules)


def rule_for(access: Access) -> str:
    """What a rule needs in order to allow this access, for people."""
    if access.resource == BROKERS:
        return f"brokers: [{access.verb!r}]"
    kind = "consumerGroups" if access.resource == CONSUMER_GROUPS else "topics"
    fields = {"namespaces": access.namespace, kind: access.name, "verbs": _verb(access)}
    return ", ".join(f"{field}: [{(value or ANY)!r}]" for field, value in fields.items())


def parse_policy(document: object) -> Policy:
    """``document`` is a parsed YAML file. Raises InvalidRequest, which names the field that is wrong."""
    if not isinstance(document, Mapping) or set(document) != {"rules"} or not isinstance(document["rules"], list):
        raise InvalidRequest("a policy is a mapping with one list, `rules`")
    if len(document["rules"]) > MAX_RULES:
        raise InvalidRequest(f"a policy has {MAX_RULES:,} rules at most")
    return Policy([_rule(fields, f"rules[{number}]") for number, fields in enumerate(document["rules"])])


_FIELDS = {
    "identities": "identities",
    "groups": "groups",
    "namespaces": "namespaces",
    "topics": "topics",
    "consumerGroups": "consumer_groups",
    "verbs": "verbs",
    "brokers": "brokers",
}


def _rule(fields: Any, where: str) -> PolicyRule:
    if not isinstance(fields, Mapping):
        raise InvalidRequest(f"{where} is no mapping")
    for field, values in fields.items():
        if field not in _FIELDS:
            raise InvalidRequest(f"{where}.{field}: there is no such field, only {', '.join(_FIELDS)}")
        if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
            raise InvalidRequest(f"{where}.{field} is no list of names")
    rule = PolicyRule(**{_FIELDS[field]: frozenset(values) for field, values in fields.items()})
    for field, given, known in (("verbs", rule.verbs, TOPIC_VERBS), ("brokers", rule.brokers, BROKER_VERBS)):
        if unknown := sorted(given - known - {ANY}):
            raise InvalidRequest(f"{where}.{field}: {unknown[0]} is none of {', '.join(sorted(known))} and '*'")
    # What is left out would allow nothing, and whoever left it out may have meant everything.
    if not rule.identities and not rule.groups:
        raise InvalidRequest(f"{where} names nobody: it needs identities or groups")
    if not rule.verbs and not rule.brokers:
        raise InvalidRequest(f"{where} allows nothing: it needs verbs or brokers")
    if rule.verbs and not (rule.namespaces and (rule.topics or rule.consumer_groups)):
        raise InvalidRequest(f"{where} needs namespaces, and topics or consumerGroups: '*' stands for all of them")
    if rule.consumer_groups and not _has(rule.verbs, Right.CONSUME.value):
        raise InvalidRequest(f"{where}.consumerGroups needs the verb {Right.CONSUME.value}")
    return rule


def _verb(access: Access) -> str:
    """The word of a policy: the virtual subresources of RBAC are verbs here."""
    return access.subresource or access.verb


def _has(allowed: frozenset[str], value: str) -> bool:
    return ANY in allowed or value in allowed
