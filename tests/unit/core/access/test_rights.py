from __future__ import annotations

import pytest

from smq_core.access.rights import MAX_PATTERNS, Right, group_names, topic_right, topic_verb


def test_rights_read_as_those_of_kubernetes() -> None:
    assert str(topic_right(Right.PRODUCE, "travel/flights")) == 'create topics/produce "flights" in namespace "travel"'
    assert str(topic_verb("delete", "travel/flights")) == 'delete topics "flights" in namespace "travel"'
    assert str(topic_verb("list", "travel/")) == 'list topics in namespace "travel"'


@pytest.mark.parametrize(
    "group, names",
    [
        ("billing", ("billing", "*")),
        ("team-a.billing", ("team-a.billing", "team-a.*", "*")),
        ("a.b.c.d.e.f", ("a.b.c.d.e.f", "a.b.c.d.e.*", "a.b.c.d.*", "a.b.c.*", "*")),
    ],
)
def test_a_group_has_its_name_and_a_few_patterns(group: str, names: tuple[str, ...]) -> None:
    assert group_names(group) == names
    assert len(names) <= 1 + MAX_PATTERNS
