"""Which positions of a program that starts again no reader can have had, as far as the client can tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from smq.consuming.saved_positions import are_doubtful, without_losses
from smq_core.errors import Unreachable
from smq_core.model.entities import Replica
from smq_core.model.interval_set import EMPTY, IntervalSet
from smq_core.model.loss import Loss
from smq_proto.v1 import data_pb2 as pb
from support.in_memory.topic import PARTITIONS, REPLICAS, TopicInMemory

PRIMARY, FOLLOWER = REPLICAS
GONE = f"t-0-{PARTITIONS}-7"


@pytest.fixture
def topic() -> TopicInMemory:
    """A sealed segment with five messages and an open successor. The primary reports seven, the follower three."""
    made = TopicInMemory()
    child = made.segment(1, predecessors=(made.first.name,))
    made.seal(made.first, 5, child)
    made.dialer = Reports({PRIMARY.address: (PRIMARY.incarnation, 7), FOLLOWER.address: (FOLLOWER.incarnation, 3)})  # type: ignore[assignment]
    return made


class Reports:
    """The watermarks of the segment with number 1, by address."""

    def __init__(self, watermarks: dict[str, tuple[str, int]]) -> None:
        self.watermarks = watermarks

    def flight(self, replica: Replica) -> Any:
        return replica.address

    def call(self, address: str, topic: str, action: str, request: object, timeout: float) -> bytes:
        if address not in self.watermarks:
            raise Unreachable(f"{address} does not answer")
        incarnation, watermark = self.watermarks[address]
        report = pb.SegmentReport(segment=f"t-0-{PARTITIONS}-1", watermark=watermark)
        return pb.BrokerStatus(incarnation=incarnation, segments=[report]).SerializeToString()


def doubtful(topic: TopicInMemory, positions: dict[str, int], removed: IntervalSet = EMPTY) -> bool:
    view: Any = topic
    return are_doubtful(view, positions, topic.sealed, removed)


@pytest.mark.parametrize("number", [0, 1])
def test_a_position_up_to_the_end_is_not_doubtful_and_one_after_it_is(topic: TopicInMemory, number: int) -> None:
    name, end = f"t-0-{PARTITIONS}-{number}", (5, 7)[number]

    assert not doubtful(topic, {name: end})
    assert doubtful(topic, {name: end + 1})


def test_a_segment_that_never_was_is_doubtful_and_one_that_retention_removed_is_not(topic: TopicInMemory) -> None:
    assert doubtful(topic, {GONE: 1})
    assert not doubtful(topic, {GONE: 1}, ((7, 8),))


def test_what_was_read_of_a_segment_that_lost_messages_is_not_doubtful(topic: TopicInMemory) -> None:
    topic.seal(topic.first, 5, *topic.snapshot.layout.segments, lost=Loss(5, 6))

    assert not doubtful(topic, {topic.first.name: 100})
    assert without_losses({topic.first.name: 100, GONE: 2}, topic.sealed.values(), ((7, 8),)) == {}


def test_a_follower_does_not_know_what_readers_had(topic: TopicInMemory) -> None:
    del topic.dialer.watermarks[PRIMARY.address]  # type: ignore[attr-defined]

    assert not doubtful(topic, {f"t-0-{PARTITIONS}-1": 100})


def test_a_segment_that_is_being_sealed_may_end_after_what_its_primary_knows(topic: TopicInMemory) -> None:
    (open_,) = topic.snapshot.layout.segments
    topic.set_layout([replace(open_, successors=(GONE,))])

    assert not doubtful(topic, {open_.name: 100})
