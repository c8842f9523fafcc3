"""Which partitions each member should have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.kafka_groups.consumer.assignors import Subscriber, assign_ranges, assign_uniformly
from smq_core.kafka_groups.consumer.partitions import Partitions

IDS = ["a", "b", "c", "d", "e"]
SIZES = {"t": 6, "u": 3, "v": 0}


def all_of(topics: frozenset[str], *ids: str) -> list[Subscriber]:
    return [Subscriber(it, None, topics) for it in ids]


def numbers(partitions: Partitions, topic: str) -> list[int]:
    return sorted(number for name, number in partitions if name == topic)


def test_ranges_are_the_same_for_topics_of_one_size() -> None:
    found = assign_ranges(all_of(frozenset("tw"), "b", "a"), {"t": 3, "w": 3}, {})
    assert [numbers(found["a"], it) for it in "tw"] == [[0, 1], [0, 1]]
    assert [numbers(found["b"], it) for it in "tw"] == [[2], [2]]


def test_static_members_keep_their_ranges_when_they_begin_anew() -> None:
    topics = frozenset("t")
    before = assign_ranges([Subscriber("x", "i1", topics), Subscriber("y", "i2", topics)], {"t": 4}, {})
    after = assign_ranges([Subscriber("z", "i1", topics), Subscriber("b", "i2", topics)], {"t": 4}, {})
    assert before["x"] == after["z"] and before["y"] == after["b"]


def test_ranges_have_only_members_that_subscribe() -> None:
    found = assign_ranges([*all_of(frozenset("t"), "a"), *all_of(frozenset("tu"), "b")], SIZES, {})
    assert numbers(found["a"], "u") == [] and numbers(found["b"], "u") == [0, 1, 2]


def test_a_uniform_assignment_moves_only_what_a_new_member_gets() -> None:
    topics = frozenset("t")
    before = assign_uniformly(all_of(topics, "a", "b"), {"t": 6}, {})
    after = assign_uniformly(all_of(topics, "a", "b", "c"), {"t": 6}, before)
    assert after["a"] < before["a"] and after["b"] < before["b"]
    assert [len(after[it]) for it in "abc"] == [2, 2, 2]


def test_a_uniform_assignment_moves_only_what_a_former_member_had() -> None:
    topics = frozenset("t")
    before = assign_uniformly(all_of(topics, "a", "b", "c"), {"t": 7}, {})
    after = assign_uniformly(all_of(topics, "a", "b"), {"t": 7}, before)
    assert before["a"] < after["a"] and before["b"] < after["b"]


def test_who_reads_more_topics_gets_fewer_of_those_that_others_read() -> None:
    found = assign_uniformly([*all_of(frozenset("t"), "a"), *all_of(frozenset("tu"), "b")], SIZES, {})
    assert numbers(found["b"], "u") == [0, 1, 2] and len(found["a"]) == 5 and len(found["b"]) == 4


@pytest.mark.parametrize("assign", [assign_ranges, assign_uniformly])
@given(
    subscriptions=st.dictionaries(st.sampled_from(IDS), st.frozensets(st.sampled_from(["t", "u", "v"]))),
    former=st.dictionaries(st.sampled_from(IDS), st.frozensets(st.tuples(st.sampled_from("tux"), st.integers(0, 8)))),
)
def test_each_partition_has_one_member_that_subscribes(
    assign: object, subscriptions: dict[str, frozenset[str]], former: dict[str, Partitions]
) -> None:
    subscribers = [Subscriber(id_, None, topics) for id_, topics in subscriptions.items()]
    found = assign(subscribers, SIZES, former)  # type: ignore[operator]
    assert set(found) == set(subscriptions)
    assert all(topic in subscriptions[id_] for id_, own in found.items() for topic, _ in own)
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    everything = sorted((topic, number) for topic in wanted for number in range(SIZES[topic]))
    assert sorted(at for own in found.values() for at in own) == everything
    if assign is assign_uniformly and len(set(subscriptions.values())) == 1:
        loads = [len(own) for own in found.values()]
        assert max(loads) - min(loads) <= 1
