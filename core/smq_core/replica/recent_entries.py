"""Entries that are in the filer already, and stay in memory so that readers near the end need not fetch chunks."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from smq_core.replica.log_entries import Entry


@dataclass(slots=True)
class RecentEntries:
    """The entries just below the tail, oldest first. ``limit_bytes`` is how many bytes of them are kept."""

    limit_bytes: int = 0
    _entries: deque[Entry] = field(default_factory=deque)
    _bytes: int = 0

    @property
    def start(self) -> int | None:
        """The lowest offset that is kept, or None if nothing is."""
        return self._entries[0].first if self._entries else None

    def add_all(self, entries: Sequence[Entry]) -> None:
        """Takes the entries that left the tail, and drops the oldest ones above the limit."""
        if self.limit_bytes:
            self._entries.extend(entries)
            self._bytes += sum(entry.batch.nbytes for entry in entries)
            self._trim()

    def set_limit(self, nbytes: int) -> None:
        """Sets how many bytes are kept from now on."""
        self.limit_bytes = nbytes
        self._trim()

    def from_offset(self, offset: int) -> Iterator[Entry]:
        """The entries from the one that contains ``offset``."""
        return entries_from(self._entries, offset)

    def _trim(self) -> None:
        while self._entries and self._bytes > self.limit_bytes:
            self._bytes -= self._entries.popleft().batch.nbytes


def entries_from(entries: deque[Entry], offset: int) -> Iterator[Entry]:
    """The entries from the one that contains ``offset``."""
    for i in range(count_below(entries, offset), len(entries)):
        yield entries[i]


def count_below(entries: deque[Entry], offset: int) -> int:
    """How many entries end at or below ``offset``.

    Looks at the ends first, because mostly the answer is there: a follower lacks the last entries, and the filer has
    none that are still in the tail.
    """
    if not entries or entries[0].end > offset:
        return 0
    count, step = len(entries), 1
    while step < count and entries[-step].end > offset:
        step *= 2
    return bisect_right(entries, offset, max(0, count - step), count - step // 2, key=attrgetter("end"))
