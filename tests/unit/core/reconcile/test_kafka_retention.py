"""Which removals groups of Kafka clients hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.model.entities import Reason, SealedSegment, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import PartitionOffsets
from smq_core.reconcile.kafka_retention import KafkaGroupProgress, KafkaHolds, SegmentOffsets
from smq_core.reconcile.retention import Removal, RetentionPlan

DAY = 24 * 3600 * 1_000_000
KEEP = TopicSpec(retention_abandoned_after=7 * DAY)
EXPIRE = replace(KEEP, retention_keeps_unread=False)
# Partition 4 has the messages 10 to 19, and partition 5 has none.
OFFSETS = SegmentOffsets({4: 10, 5: 7}, PartitionOffsets(first=4, ends=(20, 7)))


def removal(name: str, *before: str, end: int = 10) -> Removal:
    segment = SealedSegment(
        name=name,
        number=0,
        range=KeyRange(4, 6),
        end=end,
        predecessors=before,
        opened_because=Reason.CREATE,
        sealed_because=Reason.ROLL,
        opened_at=0,
        sealed_at=0,
    )
    return Removal(segment, "old")


def group(offsets: dict[int, int], last_active_at: int | None = None, name: str = "g") -> KafkaGroupProgress:
    return KafkaGroupProgress(name, offsets, last_active_at)


def decided(
    groups: list[KafkaGroupProgress],
    removals: list[Removal],
    spec: TopicSpec = KEEP,
    offsets: SegmentOffsets | None = OFFSETS,
) -> RetentionPlan:
    holds = KafkaHolds(spec, groups, 100 * DAY)
    for it in removals:
        holds.decide(it, offsets if holds.needs_offsets(it) else None)
    return holds.plan(RetentionPlan(removals, {"other": ["native"]}))


def names(plan: RetentionPlan) -> list[str]:
    return [it.segment.name for it in plan.removals]


@pytest.mark.parametrize(
    ("offsets", "is_read"),
    [
        ({4: 20, 5: 7}, True),
        ({4: 25}, True),
        ({4: 19, 5: 7}, False),
        ({5: 7}, False),
        ({4: 20, 5: 0}, True),
        ({4: 3, 9: 100}, False),
    ],
)
def test_a_segment_is_read_when_no_partition_has_a_message_beyond_the_offset(
    offsets: dict[int, int], is_read: bool
) -> None:
    plan = decided([group(offsets)], [removal("a")])
    assert names(plan) == (["a"] if is_read else [])
    assert plan.retained == {"other": ["native"]} | ({} if is_read else {"a": ["g (Kafka)"]})


def test_what_follows_a_segment_that_stays_stays_too() -> None:
    removals = [removal("a"), removal("b", "a", end=0), removal("c", "b", end=0), removal("x", end=0)]
    plan = decided([group({})], removals)
    assert names(plan) == ["x"]
    assert list(plan.retained) == ["other", "a"]


def test_a_group_that_is_abandoned_holds_nothing() -> None:
    assert names(decided([group({}, last_active_at=93 * DAY)], [removal("a")])) == []
    assert names(decided([group({}, last_active_at=93 * DAY - 1)], [removal("a")])) == ["a"]
    assert names(decided([group({}, last_active_at=None)], [removal("a")])) == []


def test_a_segment_whose_offsets_are_not_known_stays() -> None:
    plan = decided([group({4: 20})], [removal("a"), removal("b", "a")], offsets=None)
    assert names(plan) == [] and plan.retained == {"other": ["native"]}
    assert names(decided([], [removal("a")], offsets=None)) == ["a"]


def test_a_topic_that_expires_names_who_has_not_read_it() -> None:
    groups = [group({4: 17}), group({4: 20}, name="done"), group({}, last_active_at=1, name="abandoned")]
    (found,) = decided(groups, [removal("a")], EXPIRE).removals
    assert found.kafka_unread == {"abandoned": 10, "g": 3}
    assert names(decided(groups, [removal("a")], EXPIRE, offsets=None)) == ["a"]


def test_offsets_are_needed_only_where_they_decide() -> None:
    assert not KafkaHolds(KEEP, [], 0).needs_offsets(removal("a"))
    holds = KafkaHolds(KEEP, [group({})], 0)
    assert holds.needs_offsets(removal("a")) and not holds.needs_offsets(removal("a", end=0))
    holds.decide(removal("a"), OFFSETS)
    assert not holds.needs_offsets(removal("b", "a"))
