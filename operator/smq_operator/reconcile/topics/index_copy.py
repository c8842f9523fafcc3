"""What this leader knows of a topic's index: the segments that left the layout, and what retention removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from smq_core.model.entities import RemovedSegment, SealedSegment
from smq_core.model.interval_set import EMPTY, IntervalSet, contains, from_numbers, union
from smq_core.model.sealed_losses import merge_loss
from smq_core.reconcile.retention import Removal
from smq_storage.catalog.sealed_index import Index


@dataclass(slots=True)
class IndexCopy:
    """See the module's docstring. The filer has the index; this is what was read of it, and written to it."""

    sealed: dict[str, SealedSegment] = field(default_factory=dict)
    """In the order in which segments left the layout."""
    removed_intervals: IntervalSet = EMPTY
    """The numbers of the segments that retention removed from the index."""
    removed_segments: dict[str, RemovedSegment] = field(default_factory=dict)
    """The segments removed last, and all removed segments whose files still exist."""
    changes: int = 0
    is_read: bool = False
    _loss_version: tuple[int, int] = (-1, 0)
    _messages: tuple[int, int] = (-1, 0)
    """The number of changes, and how many messages the segments have."""

    def reset(self) -> None:
        """The topic is another one of the same name."""
        self.sealed, self.removed_intervals, self.removed_segments = {}, EMPTY, {}
        self.is_read = False
        self.changes += 1  # what was counted is of the former topic of that name

    def merge(self, index: Index) -> None:
        """Takes in an index that was read. Entries that this leader appended since stay; removed ones stay removed."""
        self.is_read = True
        before = (self.sealed, self.removed_intervals)
        known = self.sealed | {it.name: merge_loss(it, self.sealed.get(it.name)) for it in index.entries}
        self.removed_intervals = union(self.removed_intervals, index.removed)
        self.sealed = {
            name: entry for name, entry in known.items() if not contains(self.removed_intervals, entry.number)
        }
        self.removed_segments = {segment.name: segment for segment in index.removed_segments}
        if before != (self.sealed, self.removed_intervals):
            self.changes += 1

    def add(self, entries: Iterable[SealedSegment]) -> None:
        """Takes in entries that this leader appended to the index."""
        for entry in entries:
            if entry.name not in self.sealed and not contains(self.removed_intervals, entry.number):
                self.sealed[entry.name] = entry
                self.changes += 1

    def loss_version(self) -> int:
        """A number that grows with what the index says is lost, and is the same for every leader; 0 without a loss."""
        if self._loss_version[0] != self.changes:
            ranges = (entry.lost for entry in self.sealed.values())
            total = sum(1 + it.stop - it.start + it.at_least for it in ranges if it is not None)
            self._loss_version = (self.changes, total)
        return self._loss_version[1]

    def update_losses(self, entries: Iterable[SealedSegment]) -> list[SealedSegment]:
        """Takes in entries whose losses were raised in the index; returns those that are new to this leader."""
        raised = [it for it in entries if it.name in self.sealed and self.sealed[it.name].lost != it.lost]
        for entry in raised:
            self.sealed[entry.name] = entry
            self.changes += 1
        return raised

    def name_file_lists(self, named: Mapping[str, str]) -> None:
        """The index names these file lists now, by segment."""
        changed = {
            name: replace(self.sealed[name], file_list=file_list)
            for name, file_list in named.items()
            if name in self.sealed and self.sealed[name].file_list != file_list
        }
        if changed:
            self.sealed |= changed
            self.changes += 1

    def record_superseded(self, entries: Iterable[SealedSegment]) -> None:
        """The index has these entries now, with records of their superseded chunks."""
        for entry in entries:
            known = self.sealed.get(entry.name)
            if known is not None and known.file_list == entry.file_list:
                self.sealed[entry.name] = replace(known, superseded=entry.superseded)

    def remove(self, removals: Iterable[Removal], now: int) -> None:
        """Retention removed these from the index."""
        for removal in removals:
            it = removal.segment
            self.sealed.pop(it.name, None)
            self.removed_segments[it.name] = RemovedSegment(
                name=it.name, number=it.number, end=it.end, removed_at=now, bytes=it.bytes, unread=removal.unread
            )
            self.removed_intervals = union(self.removed_intervals, from_numbers([it.number]))
        self.changes += 1

    def mark_files_deleted(self, names: Iterable[str]) -> None:
        """The files of these removed segments were deleted."""
        for name in names:
            if name in self.removed_segments:
                self.removed_segments[name] = replace(self.removed_segments[name], files=False)

    def message_count(self) -> int:
        """Not summed at each call, because an index may have a hundred thousand entries."""
        if self._messages[0] != self.changes:
            self._messages = (self.changes, sum(entry.end for entry in self.sealed.values()))
        return self._messages[1]
