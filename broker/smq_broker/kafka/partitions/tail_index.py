"""Where Kafka's offsets are in the memory of a segment's primary."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from smq_core.replica.log_entries import Entry
from smq_core.replica.partition_counter import PartitionCounter
from smq_core.replica.recent_entries import entries_from
from smq_core.replica.segment_replica import SegmentReplica


class IndexedEntry(NamedTuple):
    """The messages of one partition in an entry. ``offset`` is the Kafka offset of the first of them."""

    offset: int
    messages: int
    entry: Entry

    @property
    def end(self) -> int:
        return self.offset + self.messages


@dataclass(slots=True)
class _Partition:
    """``entries`` before ``first`` are no longer in memory. They are removed now and then."""

    entries: list[IndexedEntry] = field(default_factory=list)
    first: int = 0

    def trim(self, tail_start: int) -> None:
        while self.first < len(self.entries) and self.entries[self.first].entry.end <= tail_start:
            self.first += 1
        if self.first > 1000 and self.first * 2 > len(self.entries):
            del self.entries[: self.first]
            self.first = 0


class TailIndex:
    """Of one primary. ``update`` follows its log; all methods are called under the segment's lock."""

    def __init__(self) -> None:
        self._counter: PartitionCounter | None = None
        self._partitions: dict[int, _Partition] = {}
        self._end = 0
        """The segment's offset up to which entries are known here."""

    def update(self, machine: SegmentReplica) -> None:
        """Takes in the entries since the last call. The first call begins where the chain ends."""
        if self._counter is None:
            state = machine.state_at_chain_end() if machine.end else machine.state_at_end()
            self._end = machine.chain_end
            self._counter = state.partitions
        if self._end == machine.end:
            return
        if self._end < machine.tail_start:
            self._restart(machine)
        for entry in self._new_entries(machine):
            if entry.partition_starts is not None:
                self._counter = PartitionCounter(entry.partition_starts)
            assert self._counter is not None
            for one in entry.batch.partition_rows:
                partition, messages = one
                entries = self._partitions.setdefault(partition, _Partition()).entries
                entries.append(IndexedEntry(self._counter.next_offset(partition), messages, entry))
                self._counter.append((one,))
            self._end = entry.end

    def _new_entries(self, machine: SegmentReplica) -> Iterator[Entry]:
        if self._end < machine.chain_end:
            yield from machine.recent.from_offset(self._end)
        yield from entries_from(machine.tail, self._end)

    def _restart(self, machine: SegmentReplica) -> None:
        """Entries have left the memory before they were taken in."""
        self._partitions.clear()
        self._counter, self._end = machine.state_at_chain_end().partitions, machine.chain_end

    def end(self, partition: int, watermark: int) -> int | None:
        """Kafka's high watermark of the partition. None while the segment has no message and no known beginning."""
        if self._counter is None:
            return None
        for it in reversed(self._partitions.get(partition, _EMPTY).entries):
            if it.entry.end <= watermark:
                return it.end
            below = it.offset
        else:
            entries = self._partitions.get(partition, _EMPTY).entries
            return below if entries else self._counter.end(partition)

    def start(self, partition: int, tail_start: int) -> int | None:
        """The lowest offset of the partition in memory, or None if there is none."""
        found = self._partitions.get(partition)
        if found is None:
            return None
        found.trim(tail_start)
        return found.entries[found.first].offset if found.first < len(found.entries) else None

    def find(self, partition: int, offset: int, watermark: int) -> Iterator[IndexedEntry]:
        """The entries with messages of the partition from this offset on, below the segment's watermark."""
        found = self._partitions.get(partition)
        if found is None:
            return
        entries = found.entries
        at = max(found.first, bisect_right(entries, offset, key=lambda it: it.offset) - 1)
        if at < len(entries) and entries[at].end <= offset:
            at += 1
        for number in range(at, len(entries)):
            if entries[number].entry.end > watermark:
                return
            yield entries[number]


_EMPTY = _Partition()
