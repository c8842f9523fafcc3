"""Checks what the chunks of a segment say of Kafka's offsets, one chunk after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.partition_offsets import PartitionOffsets


class CountedPartitions:
    """Keeps where the partitions end after a chunk, with which the next one is compared."""

    def __init__(self) -> None:
        self._before: PartitionOffsets | None = None

    def problems(self, info: ChunkInfo, counts: Mapping[int, int] | None) -> Iterator[str]:
        """What is wrong with the next chunk. ``counts`` has its messages by partition, None if they were not read.

        The first chunk of a segment, and one after a compacted chunk, is not compared, and nor is one before which a
        partition has still to jump.
        """
        before, after = self._before, info.partitions
        self._before = after
        if after is None:
            if info.compacted is None and not info.uninherited:
                yield "does not say at which Kafka offsets its partitions end"
            return
        if before is None or before.jumps or before.range != after.range:
            return
        grown = {after.first + n: b - a for n, (a, b) in enumerate(zip(before.ends, after.ends, strict=True))}
        if counts is None:
            if sum(grown.values()) != info.rows or min(grown.values()) < 0:
                yield f"has {info.rows} messages, and its partitions end {sum(grown.values())} Kafka offsets later"
            return
        wrong = [partition for partition, rows in grown.items() if rows != counts.get(partition, 0)]
        if wrong:
            found, said = counts.get(wrong[0], 0), grown[wrong[0]]
            yield f"has {found} messages of partition {wrong[0]}, which ends {said} Kafka offsets later"
