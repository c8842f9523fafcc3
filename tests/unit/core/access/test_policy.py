from __future__ import annotations

from typing import Any

import pytest

from smq_core.access.policy import MAX_RULES, parse_policy, rule_for
from smq_core.access.rights import Access, Right, broker_verb, group_rights, topic_right, topic_verb
from smq_core.errors import InvalidRequest

RULE: dict[str, Any] = {
    "identities": ["spark"],
    "groups": ["analysts"],
    "namespaces": ["travel"],
    "topics": ["flights"],
    "verbs": ["consume", "update"],
}
GROUPS = {**RULE, "consumerGroups": ["spark.*", "billing"]}
ALL = {"identities": ["admin"], "namespaces": ["*"], "topics": ["*"], "consumerGroups": ["*"], "verbs": ["*"]}
LIST_ALL = Access(verb="list", resource="topics", namespace="")


def allows(rule: dict[str, Any], access: Access, identity: str = "spark", *groups: str) -> bool:
    return parse_policy({"rules": [rule]}).allows(identity, groups, access)


@pytest.mark.parametrize(
    "rule, access, allowed",
    [
        (RULE, topic_right(Right.CONSUME, "travel/flights"), True),
        (RULE, topic_right(Right.PRODUCE, "travel/flights"), False),
        (RULE, topic_right(Right.ADMINISTER, "travel/flights"), False),
        (RULE, topic_right(Right.CONSUME, "travel/hotels"), False),
        (RULE, topic_right(Right.CONSUME, "default/flights"), False),
        (RULE, topic_verb("update", "travel/flights"), True),
        (RULE, topic_verb("delete", "travel/flights"), False),
        (RULE, topic_verb("update", "travel/"), False),
        (RULE, broker_verb("update"), False),
        ({**RULE, "topics": ["*"]}, topic_verb("update", "travel/hotels"), True),
        ({**RULE, "topics": ["*"], "verbs": ["list"]}, topic_verb("list", "travel/"), True),
        ({**RULE, "topics": ["*"], "verbs": ["list"]}, LIST_ALL, False),
        ({**RULE, "verbs": ["list"]}, topic_verb("list", "travel/"), False),
        ({**RULE, "namespaces": ["*"], "topics": ["*"], "verbs": ["list"]}, LIST_ALL, True),
        ({**RULE, "topics": ["fl*"]}, topic_right(Right.CONSUME, "travel/flights"), False),
        # The verb "create" of topics is another one than the virtual verb of RBAC in "create topics/produce".
        ({**RULE, "verbs": ["create"]}, topic_right(Right.PRODUCE, "travel/flights"), False),
        ({**RULE, "verbs": ["produce"]}, topic_verb("create", "travel/flights"), False),
        ({"identities": ["spark"], "brokers": ["list"]}, broker_verb("list"), True),
        ({"identities": ["spark"], "brokers": ["list"]}, broker_verb("update"), False),
        ({**ALL, "identities": ["spark"]}, broker_verb("list"), False),
        ({**ALL, "identities": ["spark"]}, topic_verb("delete", "any/topic"), True),
    ],
)
def test_a_rule_allows_what_it_names(rule: dict[str, Any], access: Access, allowed: bool) -> None:
    assert allows(rule, access) is allowed


@pytest.mark.parametrize(
    "identity, groups, allowed",
    [("spark", (), True), ("other", (), False), ("other", ("analysts",), True), ("analysts", ("spark",), False)],
)
def test_a_rule_is_about_identities_and_groups(identity: str, groups: tuple[str, ...], allowed: bool) -> None:
    assert allows(RULE, topic_verb("update", "travel/flights"), identity, *groups) is allowed


def test_a_rule_can_be_about_everybody() -> None:
    assert allows({**RULE, "identities": ["*"]}, topic_verb("update", "travel/flights"), "whoever")


@pytest.mark.parametrize(
    "group, allowed", [("spark.hourly", True), ("billing", True), ("sparks", False), ("billing.x", False)]
)
def test_consumer_groups_are_named_or_match_a_pattern(group: str, allowed: bool) -> None:
    assert any(allows(GROUPS, access) for access in group_rights("travel/flights", group)) is allowed
    assert not any(allows(RULE, access) for access in group_rights("travel/flights", group))
    assert not any(allows(GROUPS, access) for access in group_rights("default/flights", group))
    assert any(allows(ALL, access, "admin") for access in group_rights("travel/flights", group))


def test_no_rule_allows_nothing() -> None:
    assert not parse_policy({"rules": []}).allows("admin", (), topic_verb("get", "travel/flights"))


@pytest.mark.parametrize(
    "document, named",
    [
        (None, "rules"),
        ({"rules": {}}, "rules"),
        ({"rules": [], "more": 1}, "rules"),
        ({"rules": ["x"]}, r"rules\[0\]"),
        ({"rules": [RULE, {**RULE, "topic": ["x"]}]}, r"rules\[1\]\.topic:"),
        ({"rules": [{**RULE, "topics": "flights"}]}, "topics is no list"),
        ({"rules": [{**RULE, "topics": [1]}]}, "topics is no list"),
        ({"rules": [{**RULE, "identities": [""]}]}, "identities is no list"),
        ({"rules": [{**RULE, "verbs": ["write"]}]}, "write is none of"),
        ({"rules": [{**RULE, "brokers": ["delete"]}]}, "delete is none of"),
        ({"rules": [{**RULE, "identities": [], "groups": []}]}, "names nobody"),
        ({"rules": [{**RULE, "verbs": []}]}, "allows nothing"),
        ({"rules": [{**RULE, "namespaces": []}]}, "namespaces"),
        ({"rules": [{**RULE, "topics": []}]}, "topics"),
        ({"rules": [{**GROUPS, "verbs": ["produce"]}]}, "consumerGroups"),
        ({"rules": [RULE] * (MAX_RULES + 1)}, "at most"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(document: object, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        parse_policy(document)


@pytest.mark.parametrize(
    "access, text",
    [
        (
            topic_right(Right.PRODUCE, "travel/flights"),
            "namespaces: ['travel'], topics: ['flights'], verbs: ['produce']",
        ),
        (LIST_ALL, "namespaces: ['*'], topics: ['*'], verbs: ['list']"),
        (broker_verb("update"), "brokers: ['update']"),
        (
            group_rights("travel/flights", "billing")[0],
            "namespaces: ['travel'], consumerGroups: ['billing'], verbs: ['consume']",
        ),
    ],
)
def test_a_denial_says_which_rule_is_missing(access: Access, text: str) -> None:
    assert rule_for(access) == text
