"""A verification compares the Kafka offsets of neighbouring chunks with their messages."""

from __future__ import annotations

from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.partition_offsets import PartitionOffsets, PartitionRows
from smq_storage.verification.counted_partitions import CountedPartitions


def chunk(rows: int, ends: tuple[int, ...] | None, jumps: PartitionRows = ()) -> ChunkInfo:
    partitions = None if ends is None else PartitionOffsets(first=4, ends=ends, jumps=jumps)
    return ChunkInfo(segment="s", first=0, rows=rows, writer="w", nonce="n", partitions=partitions)


def second(before: ChunkInfo, after: ChunkInfo, counts: dict[int, int] | None = None) -> list[str]:
    """The problems of the second chunk."""
    counted = CountedPartitions()
    assert not list(counted.problems(before, None))
    return list(counted.problems(after, counts))


def test_ends_that_grow_by_the_messages_are_right() -> None:
    assert second(chunk(9, (5, 4)), chunk(3, (7, 5))) == []
    assert second(chunk(9, (5, 4)), chunk(3, (7, 5)), {4: 2, 5: 1}) == []


def test_ends_that_do_not_grow_by_the_messages_are_a_problem() -> None:
    assert second(chunk(9, (5, 4)), chunk(3, (7, 4))) == [
        "has 3 messages, and its partitions end 2 Kafka offsets later"
    ]
    assert second(chunk(9, (5, 4)), chunk(1, (7, 3))), "an end went back"
    assert second(chunk(9, (5, 4)), chunk(3, (7, 5)), {4: 1, 5: 2}) == [
        "has 1 messages of partition 4, which ends 2 Kafka offsets later"
    ]


def test_a_chunk_without_ends_is_a_problem() -> None:
    assert list(CountedPartitions().problems(chunk(2, None), None)) == [
        "does not say at which Kafka offsets its partitions end"
    ]


def test_a_chunk_after_a_jump_is_not_compared() -> None:
    assert second(chunk(1, (5, 4), ((4, 1 << 26),)), chunk(1, (5 + (1 << 26) + 1, 4))) == []
