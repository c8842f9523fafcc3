"""Kafka's offsets of the partitions of a topic whose partitioner is ``Kafka``.

Here a segment numbers all its messages. A Kafka client numbers the messages of each partition, through all segments
that ever had it. These offsets are dense, so that lag and the last n messages of a partition can be computed. They are
never used again, because a client skips what it takes for known. So after a loss they jump.

They are state of the log: each chunk has the ends of its partitions, and a segment begins where its predecessors ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from smq_core.errors import CorruptChunk
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss

# How many messages each partition has, ``(partition, messages)`` in the order of the partitions, without empty ones.
PartitionRows = tuple[tuple[int, int], ...]

# How many messages of one partition an unknown part of a loss may have. A segment is flushed long before it has more.
UNKNOWN_LOSS = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """Where each of the partitions ``first, first + 1, …`` ends, at one position of the log.

    ``ends`` has the offset after the last message of each. The next message of a partition in ``jumps``,
    ``(partition, offsets)``, comes that number of offsets after its end. Until there is one, the end stays.
    """

    first: int
    ends: tuple[int, ...]
    jumps: PartitionRows = ()

    @property
    def range(self) -> KeyRange:
        return KeyRange(self.first, self.first + len(self.ends))

    def of(self, partitions: KeyRange) -> PartitionOffsets:
        """Those of a part of the range."""
        start = partitions.start - self.first
        return PartitionOffsets(
            first=partitions.start,
            ends=self.ends[start : start + len(partitions)],
            jumps=tuple(jump for jump in self.jumps if jump[0] in partitions),
        )

    def end(self, partition: int) -> int:
        """The offset after the last message. Raises IndexError for a partition that is not in the range."""
        if partition < self.first:
            raise IndexError(f"partition {partition} is below {self.first}")
        return self.ends[partition - self.first]


def offsets_from_zero(partitions: KeyRange) -> PartitionOffsets:
    """Those of a segment without predecessors."""
    return PartitionOffsets(first=partitions.start, ends=(0,) * len(partitions))


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedPartitions:
    """What a sealed segment leaves to its successors.

    ``offsets`` is None if the segment ended empty without knowing its own predecessors. Then these know the ends.
    """

    range: KeyRange
    offsets: PartitionOffsets | None
    lost: Loss | None = None


def inherited_offsets(partitions: KeyRange, sealed: Iterable[SealedPartitions]) -> PartitionOffsets:
    """Where the partitions of a segment begin, after these predecessors.

    Every partition jumps by what any segment has lost that had it. Raises CorruptChunk if the end of a partition is not
    known.
    """
    ends: dict[int, int] = {}
    jumps: dict[int, int] = {}
    for segment in sealed:
        shared = range(max(partitions.start, segment.range.start), min(partitions.stop, segment.range.stop))
        known = segment.offsets
        pending = dict(known.jumps) if known is not None else {}
        lost = jump_over(segment.lost)
        for partition in shared:
            if known is not None:
                ends[partition] = max(ends.get(partition, 0), known.end(partition))
            if by := pending.get(partition, 0) + lost:
                jumps[partition] = jumps.get(partition, 0) + by
    missing = [partition for partition in range(partitions.start, partitions.stop) if partition not in ends]
    if missing:
        raise CorruptChunk(
            f"no predecessor says at which Kafka offset partition {missing[0]} ends, nor for {len(missing) - 1} more"
        )
    return PartitionOffsets(
        first=partitions.start,
        ends=tuple(ends[partition] for partition in range(partitions.start, partitions.stop)),
        jumps=tuple(sorted(jumps.items())),
    )


def with_sealed(ring: PartitionOffsets, sealed: Iterable[SealedPartitions]) -> PartitionOffsets:
    """The offsets of all partitions of a topic after these segments, too, have been sealed.

    Each segment counts once. Mostly they come in the order in which they had a partition; if not, no offset goes back.
    """
    ends, jumps = list(ring.ends), dict(ring.jumps)
    for segment in sealed:
        known = segment.offsets
        pending = dict(known.jumps) if known is not None else {}
        lost = jump_over(segment.lost)
        for partition in range(segment.range.start, segment.range.stop):
            jump = jumps.pop(partition, 0)
            if known is not None and known.end(partition) >= ends[partition - ring.first]:
                is_later = known.end(partition) > ends[partition - ring.first]
                ends[partition - ring.first] = known.end(partition)
                jump = pending.get(partition, 0) if is_later else max(jump, pending.get(partition, 0))
            if jump + lost:
                jumps[partition] = jump + lost
    return PartitionOffsets(first=ring.first, ends=tuple(ends), jumps=tuple(sorted(jumps.items())))


def jump_over(lost: Loss | None) -> int:
    """By how many offsets each partition of a segment jumps that has lost this."""
    if lost is None or lost.is_empty:
        return 0
    return max(0, lost.stop - lost.start) + UNKNOWN_LOSS
