"""Where Kafka's offsets are in a primary's memory: found while entries come, are acked, and leave the memory."""

from __future__ import annotations

from smq_broker.kafka.partitions.tail_index import TailIndex
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import PartitionOffsets, PartitionRows
from smq_core.replica.log_entries import BatchId, IncomingBatch, ReplicaConfig
from smq_core.replica.segment_replica import SegmentReplica


def primary(**settings: object) -> SegmentReplica:
    config = {"replicas": ("p",), "predecessors": ()} | settings
    return SegmentReplica(
        ReplicaConfig(
            segment="t-0-4-9",
            range=KeyRange(0, 4),
            incarnation="p",
            durability=Durability.REPLICATED,
            counts_partitions=True,
            flush_bytes=1,
            **config,  # type: ignore[arg-type]
        )
    )


def append(machine: SegmentReplica, *rows: PartitionRows) -> None:
    for one in rows:
        batch = IncomingBatch(
            id=BatchId("a", 0, machine.counters.batches),
            rows=sum(count for _, count in one),
            nbytes=10,
            partition_min=one[0][0],
            partition_max=one[-1][0],
            payload=None,
            partition_rows=one,
        )
        machine.append(None, batch, 0)


def flush(machine: SegmentReplica) -> None:
    chunk = machine.next_chunk(0, force=True)
    assert chunk is not None
    machine.chunk_written(chunk)


def found(index: TailIndex, machine: SegmentReplica, partition: int, offset: int) -> list[tuple[int, int]]:
    return [(it.offset, it.messages) for it in index.find(partition, offset, machine.watermark)]


def test_each_partition_has_its_own_offsets() -> None:
    machine, index = primary(), TailIndex()
    append(machine, ((0, 2), (3, 1)), ((3, 4),), ((0, 1),))
    index.update(machine)
    assert found(index, machine, 0, 0) == [(0, 2), (2, 1)]
    assert found(index, machine, 3, 1) == [(1, 4)]
    assert found(index, machine, 3, 4) == [(1, 4)]
    assert found(index, machine, 3, 5) == [] and found(index, machine, 1, 0) == []
    assert [index.end(partition, machine.watermark) for partition in range(4)] == [3, 0, 0, 5]


def test_messages_above_the_watermark_are_not_found() -> None:
    machine, index = primary(replicas=("p", "f")), TailIndex()
    machine.follower_connected("f", 0, 1 << 20)
    append(machine, ((0, 2),), ((0, 3),))
    machine.follower_acked("f", 2)
    index.update(machine)
    assert found(index, machine, 0, 0) == [(0, 2)] and index.end(0, machine.watermark) == 2
    machine.follower_acked("f", 5)
    assert found(index, machine, 0, 2) == [(2, 3)] and index.end(0, machine.watermark) == 5


def test_it_begins_where_the_chain_ends() -> None:
    machine, index = primary(), TailIndex()
    append(machine, ((0, 2),))
    flush(machine)
    append(machine, ((0, 1),))
    index.update(machine)
    assert index.start(0, machine.tail_start) == 2 and found(index, machine, 0, 2) == [(2, 1)]
    assert index.start(1, machine.tail_start) is None


def test_what_left_the_memory_is_not_found() -> None:
    machine, index = primary(), TailIndex()
    append(machine, ((0, 2),))
    index.update(machine)
    flush(machine)
    index.update(machine)
    assert index.start(0, machine.tail_start) is None
    append(machine, ((0, 1),))
    index.update(machine)
    assert index.start(0, machine.tail_start) == 2 and index.end(0, machine.watermark) == 3


def test_recent_entries_stay_while_they_are_kept() -> None:
    machine, index = primary(), TailIndex()
    machine.keep_recent_bytes(1000)
    append(machine, ((0, 2),))
    index.update(machine)
    flush(machine)
    append(machine, ((0, 1),))
    index.update(machine)
    assert index.start(0, machine.tail_start) == 0 and found(index, machine, 0, 0) == [(0, 2), (2, 1)]


def test_entries_that_came_and_left_between_two_updates_are_counted() -> None:
    machine, index = primary(), TailIndex()
    append(machine, ((0, 2),))
    index.update(machine)
    append(machine, ((0, 5),))
    flush(machine)
    append(machine, ((0, 1),))
    index.update(machine)
    assert index.start(0, machine.tail_start) == 7 and found(index, machine, 0, 7) == [(7, 1)]


def test_a_successor_begins_where_its_predecessor_ended_and_jumps() -> None:
    machine, index = primary(predecessors=("t-0-4-8",)), TailIndex()
    index.update(machine)
    assert index.end(0, machine.watermark) is None, "its beginning is not known yet"
    offsets = PartitionOffsets(first=0, ends=(10, 20, 30, 40), jumps=((1, 100),))
    machine.predecessor_sealed(SealOutcome(segment="t-0-4-8", end=9, partitions=offsets))
    index.update(machine)
    assert [index.end(partition, machine.watermark) for partition in range(4)] == [10, 20, 30, 40]
    append(machine, ((0, 1), (1, 1)))
    index.update(machine)
    assert found(index, machine, 0, 10) == [(10, 1)]
    assert found(index, machine, 1, 20) == [(120, 1)], "a reader at the end gets what follows the jump"
