"""What goes over the wire comes back as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.errors import InvalidRequest
from smq_core.model import layout_transitions as layouts
from smq_core.model.chunk_info import ProducerState, SealOutcome
from smq_core.model.entities import (
    Column,
    Durability,
    Layout,
    Reason,
    Replica,
    SealedSegment,
    Topic,
    TopicSchema,
    TopicSpec,
)
from smq_core.model.keyspace import KeyRange, Partitioner
from smq_core.model.layout_transitions import SealPlan, Successor
from smq_core.model.loss import Loss
from smq_core.model.partition_offsets import PartitionOffsets
from smq_proto.wire import (
    PROTOCOL,
    check_protocol,
    layout_from_pb,
    layout_to_pb,
    outcome_from_pb,
    outcome_to_pb,
    producer_from_pb,
    producer_to_pb,
    sealed_from_pb,
    sealed_to_pb,
    topic_from_pb,
    topic_to_pb,
)

REPLICAS = (Replica("b0", "b0.1", "h:1"), Replica("b1", "b1.1", "h:2"))


def successor(start: int, stop: int) -> Successor:
    return Successor(KeyRange(start, stop), REPLICAS, Durability.REPLICATED)


def over_the_wire(layout: Layout) -> Layout:
    return layout_from_pb(layout_to_pb(layout))


def test_a_layout_keeps_its_next_number() -> None:
    """Which segments there may have been is known by it: a reader's position in another one counts for nothing."""
    made = layouts.create("default/t", "uid", 8, [successor(0, 4), successor(4, 8)], now=1, writer="w")
    first, second = (s.name for s in made.segments)
    plan = SealPlan((first,), Reason.SPLIT, (successor(0, 2), successor(2, 4)))
    split = layouts.plan(made, [plan], now=2, writer="w")
    rolled = layouts.plan(split, [SealPlan((second,), Reason.ROLL, (successor(4, 8),))], now=3, writer="w")
    left = layouts.activate(rolled, [first, second], writer="w")
    for layout in (made, split, rolled, left):
        assert over_the_wire(layout).next_number == layout.next_number > 0


@pytest.mark.parametrize(
    "state",
    [
        ProducerState(epoch=0, last_sequence=0, recent=(0,)),
        ProducerState(epoch=3, last_sequence=41, recent=(480, 490), instance="0123456789abcdef", appended=99),
        ProducerState(epoch=3, last_sequence=-1, recent=(), instance="!", appended=99),
    ],
)
def test_a_producer_keeps_its_state_also_if_it_was_inherited(state: ProducerState) -> None:
    assert producer_from_pb(producer_to_pb(state)) == state


def test_an_outcome_for_one_producer_still_says_what_was_forgotten() -> None:
    states = {
        "a": ProducerState(epoch=1, last_sequence=2, recent=(5,), instance="i", appended=9),
        "b": ProducerState(epoch=0, last_sequence=0, recent=(1,)),
    }
    lost = Loss(10, 12, at_least=True)
    outcome = SealOutcome(segment="s", end=10, producers=states, lost=lost, forgotten_upto=7, uninherited=("x", "y"))
    assert outcome_from_pb(outcome_to_pb(outcome)) == outcome
    alone = outcome_from_pb(outcome_to_pb(outcome, only="c"))
    assert (alone.producers, alone.forgotten_upto) == ({}, 7)


def test_an_outcome_keeps_where_its_partitions_end() -> None:
    ends = PartitionOffsets(first=3, ends=(5, 0, 1 << 40), jumps=((4, 1 << 26),))
    outcome = SealOutcome(segment="s", end=10, partitions=ends)
    assert outcome_from_pb(outcome_to_pb(outcome)) == outcome
    damaged = outcome_to_pb(outcome)
    damaged.partitions.jumps.rows.append(1)
    with pytest.raises(InvalidRequest, match="1 partitions"):
        outcome_from_pb(damaged)


def test_the_partitioner_goes_over_the_wire() -> None:
    for partitioner in Partitioner:
        topic = Topic("default/t", "u", TopicSpec(partitions=8, partitioner=partitioner))
        assert topic_from_pb(topic_to_pb(topic)).spec.partitioner is partitioner


@pytest.mark.parametrize("lost", [None, Loss(100, 120), Loss(100, 120, True), Loss(100, 100, True)])
def test_a_sealed_segment_keeps_its_file_list_and_what_it_lost(lost: Loss | None) -> None:
    entry = SealedSegment(
        name="t-0-8-0",
        number=0,
        range=KeyRange(0, 8),
        end=100,
        predecessors=(),
        successors=(),
        opened_because=Reason.CREATE,
        sealed_because=Reason.FAILOVER,
        opened_at=1,
        sealed_at=2,
        file_list="m.json",
    )
    entry = replace(entry, lost=lost)
    assert sealed_from_pb(sealed_to_pb(entry)) == entry and entry.lost == lost


@pytest.mark.parametrize("version", [0, PROTOCOL + 2])
def test_versions_that_may_mean_something_else_are_refused(version: int) -> None:
    with pytest.raises(InvalidRequest, match=f"protocol version {version} is not supported here"):
        check_protocol(version)


def test_this_version_and_the_next_one_are_accepted() -> None:
    check_protocol(PROTOCOL)
    check_protocol(PROTOCOL + 1)


def test_schema_versions_go_over_the_wire() -> None:
    made = layouts.create("default/t", "uid", 8, [successor(0, 8)], now=1, writer="w")
    segment = replace(made.segments[0], schema_version=3, opened_because=Reason.SCHEMA, sealed_because=Reason.SCHEMA)
    newest = TopicSchema(3, (Column("a", "int8", True),), ("b", "c"))
    evolved = replace(made, segments=(segment,), schemas=(newest,))
    received = over_the_wire(evolved)
    assert (received.segments, received.schemas) == (evolved.segments, evolved.schemas)
    topic = Topic("default/t", "uid", TopicSpec(schema=(Column("b", "int8"),)))
    info = topic_to_pb(topic, newest)
    assert (topic_from_pb(info).spec.schema, info.schema_version) == (newest.columns, 3)
    assert topic_from_pb(topic_to_pb(topic)) == topic


def test_a_longest_flush_interval_goes_over_the_wire() -> None:
    topic = Topic("default/t", "uid", TopicSpec(flush_interval=10, flush_max_interval=120))
    info = topic_to_pb(topic)
    assert topic_from_pb(info) == topic
    info.ClearField("flush_max_interval")
    assert topic_from_pb(info).spec.longest_flush_interval == 10, "it does not stretch"


def test_a_reason_of_a_later_release_does_not_hide_the_segment() -> None:
    """Otherwise its layout would be refused, and a history with such a segment for ever."""
    entry = SealedSegment(
        name="s",
        number=0,
        range=KeyRange(0, 8),
        end=0,
        predecessors=(),
        successors=(),
        opened_because=Reason.SCHEMA,
        sealed_because=Reason.SCHEMA,
        opened_at=0,
        sealed_at=0,
        schema_version=1,
    )
    message = sealed_to_pb(entry)
    assert sealed_from_pb(message) == entry
    message.sealed_because = 99
    assert sealed_from_pb(message) == replace(entry, sealed_because=Reason.ROLL)
