"""Kafka's offsets: counted by entry, carried by chunks and seals, and inherited by successors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.errors import CorruptChunk, InvalidRequest
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss
from smq_core.model.partition_offsets import (
    UNKNOWN_LOSS,
    PartitionOffsets,
    PartitionRows,
    SealedPartitions,
    inherited_offsets,
    offsets_from_zero,
)
from smq_core.replica.log_entries import BatchId, IncomingBatch, ReplicaConfig
from smq_core.replica.partition_counter import PartitionCounter
from smq_core.replica.segment_replica import SegmentReplica
from smq_core.sealing.chain_sealer import ReadChunk, UnsealedTail, WriteChunk, WriteSeal, seal

RING = KeyRange(0, 4)


def replica(range_: KeyRange = RING, incarnation: str = "p", **settings: object) -> SegmentReplica:
    config = {"predecessors": (), "counts_partitions": True} | settings
    name = f"t-{range_.start}-{range_.stop}-9"
    return SegmentReplica(
        ReplicaConfig(
            segment=name,
            range=range_,
            incarnation=incarnation,
            replicas=("p", "f"),
            durability=Durability.REPLICATED,
            **config,  # type: ignore[arg-type]
        )
    )


def batch(sequence: int, rows: PartitionRows) -> IncomingBatch:
    return IncomingBatch(
        id=BatchId("a", 0, sequence),
        rows=sum(count for _, count in rows),
        nbytes=10,
        partition_min=min(partition for partition, _ in rows),
        partition_max=max(partition for partition, _ in rows),
        payload=None,
        partition_rows=rows,
    )


def sealed_with(it: SegmentReplica) -> tuple[list[WriteChunk], SealOutcome]:
    """The chunks and the outcome of a seal in an empty filer."""
    steps = seal(it.config.segment, UnsealedTail.of(it))
    chunks, reply = [], None
    while True:
        try:
            request = steps.send(reply)  # type: ignore[arg-type]
        except StopIteration as done:
            return chunks, done.value
        reply = None if isinstance(request, ReadChunk) else True  # type: ignore[assignment]
        if isinstance(request, WriteChunk):
            chunks.append(request)
        assert isinstance(request, ReadChunk | WriteChunk | WriteSeal)


def outcome(segment: str, ends: tuple[int, ...] | None, **fields: object) -> SealOutcome:
    first = int(segment.split("-")[1])
    partitions = None if ends is None else PartitionOffsets(first=first, ends=ends)
    return SealOutcome(segment=segment, end=0, partitions=partitions, **fields)  # type: ignore[arg-type]


def test_each_entry_is_counted_and_the_seal_has_the_ends():
    primary = replica()
    primary.append(None, batch(0, ((0, 2), (3, 1))), 0)
    primary.append(None, batch(1, ((0, 1), (1, 4))), 0)
    assert primary.state_at_end().partition_offsets() == PartitionOffsets(first=0, ends=(3, 4, 0, 1))
    (chunk,), sealed = sealed_with(primary)
    assert sealed.partitions == chunk.chunk.partitions == PartitionOffsets(first=0, ends=(3, 4, 0, 1))


def test_a_repeat_is_not_counted_twice():
    primary = replica()
    for _ in range(2):
        primary.append(None, batch(0, ((0, 2),)), 0)
    assert primary.state_at_end().partition_offsets() == PartitionOffsets(first=0, ends=(2, 0, 0, 0))


def test_a_chunk_has_the_ends_after_it_and_not_those_of_the_tail():
    primary = replica()
    primary.follower_connected("f", 0, 1 << 20)
    primary.append(None, batch(0, ((1, 2),)), 0)
    primary.follower_acked("f", 2)
    primary.append(None, batch(1, ((1, 5),)), 0)
    chunk = primary.next_chunk(0, force=True)
    assert chunk is not None and chunk.info("s", "w", "n").partitions == PartitionOffsets(first=0, ends=(0, 2, 0, 0))
    primary.chunk_written(chunk)
    assert primary.state_at_chain_end().partition_offsets() == PartitionOffsets(first=0, ends=(0, 2, 0, 0))


def test_a_follower_counts_what_the_first_entry_inherits():
    primary = replica(KeyRange(2, 4), predecessors=("t-0-4-1",))
    primary.predecessor_sealed(outcome("t-0-4-1", (7, 8, 9, 10)))
    follower = replica(KeyRange(2, 4), "f", predecessors=("t-0-4-1",))
    assert follower.state_at_end().partition_offsets() is None
    primary.follower_connected("f", 0, 1 << 20)
    primary.append(None, batch(0, ((3, 5),)), 0)
    primary.append(None, batch(1, ((2, 1),)), 0)
    message = primary.replication_for("f")
    assert message is not None
    follower.replicate(message)
    expected = PartitionOffsets(first=2, ends=(10, 15))
    assert primary.state_at_end().partition_offsets() == follower.state_at_end().partition_offsets() == expected
    assert sealed_with(follower)[1].partitions == expected


def test_an_empty_segment_that_has_read_its_predecessors_leaves_what_it_inherited():
    primary = replica(KeyRange(2, 4), predecessors=("t-0-4-1",))
    primary.predecessor_sealed(outcome("t-0-4-1", (7, 8, 9, 10)))
    assert sealed_with(primary)[1].partitions == PartitionOffsets(first=2, ends=(9, 10))


def test_an_empty_segment_that_has_not_read_them_names_them_and_successors_inherit_from_these():
    waiting = replica(KeyRange(2, 4), predecessors=("t-0-4-1",))
    unread = sealed_with(waiting)[1]
    assert (unread.partitions, unread.uninherited) == (None, ("t-0-4-1",))
    successor = replica(KeyRange(2, 4), predecessors=(unread.segment,))
    successor.predecessor_sealed(unread)
    assert successor.unread_predecessors == {"t-0-4-1"}
    successor.predecessor_sealed(outcome("t-0-4-1", (7, 8, 9, 10)))
    assert successor.state_at_end().partition_offsets() == PartitionOffsets(first=2, ends=(9, 10))


def test_merged_segments_leave_their_own_partitions():
    primary = replica(KeyRange(0, 4), predecessors=("t-0-1-1", "t-1-4-2"))
    primary.predecessor_sealed(outcome("t-1-4-2", (5, 6, 7)))
    primary.predecessor_sealed(outcome("t-0-1-1", (4,)))
    assert primary.state_at_end().partition_offsets() == PartitionOffsets(first=0, ends=(4, 5, 6, 7))


def test_after_a_loss_the_next_offset_of_each_partition_jumps_and_the_end_stays():
    primary = replica(KeyRange(0, 2), predecessors=("t-0-2-1",))
    primary.predecessor_sealed(outcome("t-0-2-1", (5, 6), lost=Loss(11, 14, at_least=True)))
    partitions = primary.state_at_end().partitions
    assert partitions is not None
    assert [partitions.end(0), partitions.next_offset(0)] == [5, 5 + 3 + UNKNOWN_LOSS]
    primary.append(None, batch(0, ((0, 1),)), 0)
    left = sealed_with(primary)[1].partitions
    assert left is not None and left.ends == (5 + 3 + UNKNOWN_LOSS + 1, 6)
    assert left.jumps == ((1, 3 + UNKNOWN_LOSS),), "a partition without a message yet still has to jump"


def test_jumps_of_several_segments_add_up():
    found = inherited_offsets(
        KeyRange(0, 1),
        [
            SealedPartitions(
                range=KeyRange(0, 1),
                offsets=PartitionOffsets(first=0, ends=(5,), jumps=((0, UNKNOWN_LOSS),)),
                lost=Loss(5, 5, at_least=True),
            ),
            SealedPartitions(range=KeyRange(0, 1), offsets=None, lost=Loss(0, 2)),
        ],
    )
    assert found == PartitionOffsets(first=0, ends=(5,), jumps=((0, 3 * UNKNOWN_LOSS + 2),))


def test_a_partition_without_a_known_end_is_an_error():
    with pytest.raises(CorruptChunk, match="partition 1"):
        inherited_offsets(
            KeyRange(0, 2), [SealedPartitions(range=KeyRange(0, 1), offsets=offsets_from_zero(KeyRange(0, 1)))]
        )


def test_a_batch_that_does_not_count_all_its_messages_is_refused_and_changes_nothing():
    primary = replica()
    wrong = IncomingBatch(
        id=BatchId("a", 0, 0),
        rows=2,
        nbytes=1,
        partition_min=0,
        partition_max=0,
        payload=None,
        partition_rows=((0, 1),),
    )
    with pytest.raises(InvalidRequest, match="counts"):
        primary.append(None, wrong, 0)
    assert primary.end == 0
    assert primary.state_at_end().partition_offsets() == offsets_from_zero(KeyRange(0, 4))


def test_a_repeat_counts_nothing_because_its_upload_is_not_read_again():
    primary = replica()
    primary.append(None, batch(0, ((0, 2),)), 0)
    assert primary.append(None, replace(batch(0, ((0, 2),)), partition_rows=()), 1) is None
    assert primary.end == 2


def test_a_segment_that_does_not_count_has_no_offsets():
    primary = replica(counts_partitions=False)
    primary.append(None, batch(0, ((0, 2),)), 0)
    (chunk,), sealed = sealed_with(primary)
    assert sealed.partitions is None and chunk.chunk.partitions is None


def test_partitions_below_the_range_are_no_index_from_the_end():
    counter = PartitionCounter(offsets_from_zero(KeyRange(2, 4)))
    for partition in (1, 4):
        with pytest.raises(IndexError):
            counter.append(((partition, 1),))
        with pytest.raises(IndexError):
            counter.next_offset(partition)
    assert counter.offsets() == offsets_from_zero(KeyRange(2, 4))
