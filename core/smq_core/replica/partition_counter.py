"""Counts the messages of each partition of a segment, as the log has them."""

from __future__ import annotations

from smq_core.model.partition_offsets import PartitionOffsets, PartitionRows


class PartitionCounter:
    """Where the partitions end at one position of the log, which moves on."""

    def __init__(self, at: PartitionOffsets) -> None:
        self._first = at.first
        self._ends = list(at.ends)
        self._jumps = dict(at.jumps)

    def append(self, rows: PartitionRows) -> None:
        """Messages of these partitions follow. Raises IndexError for a partition that is not in the range."""
        for partition, count in rows:
            self._ends[self._index(partition)] += count + self._jumps.pop(partition, 0)

    def next_offset(self, partition: int) -> int:
        """The offset of the partition's next message. Raises IndexError."""
        return self._ends[self._index(partition)] + self._jumps.get(partition, 0)

    def end(self, partition: int) -> int:
        """The offset after the partition's last message. Raises IndexError."""
        return self._ends[self._index(partition)]

    def offsets(self) -> PartitionOffsets:
        return PartitionOffsets(first=self._first, ends=tuple(self._ends), jumps=tuple(sorted(self._jumps.items())))

    def copy(self) -> PartitionCounter:
        return PartitionCounter(self.offsets())

    def _index(self, partition: int) -> int:
        if partition < self._first:
            raise IndexError(f"partition {partition} is below {self._first}")
        return partition - self._first
