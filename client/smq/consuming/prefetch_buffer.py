"""The buffer of what fetchers have read ahead and the consumer has not returned yet."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from smq_core.errors import SmqError


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """Messages at consecutive offsets from ``first``."""

    table: pa.Table
    first: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.first + int(self.table.num_rows)


@dataclass(frozen=True, slots=True)
class FetchedLoss:
    """Offsets that were written and no longer exist; ``stop`` is None if their end is not known.

    ``at_least``: those from ``stop`` on may be lost, too. If it equals ``start``, it is not known whether any was lost.
    ``file`` is the path of the file that had them, if it alone is gone or was altered.
    """

    start: int
    stop: int | None
    at_least: bool = False
    file: str = ""


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """The segment is sealed at this end, and everything before it is in the buffer."""

    end: int


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """Reading failed for good."""

    error: SmqError


FetchedItem = FetchedRows | FetchedLoss | SegmentEnd | FetchFailed


class FetchedItemSource(Protocol):
    """A reader that puts items in. Each has its own queue, even if another one reads the same segment later."""

    segment: str


R = TypeVar("R", bound=FetchedItemSource)


class PrefetchBuffer(Generic[R]):
    """One queue per reader, with a shared budget of bytes. A reader with an empty queue may always put one item in."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._bytes = 0
        self._queues: dict[R, deque[FetchedItem]] = {}
        self._ready: deque[R] = deque()
        self.changed = threading.Condition()

    def open(self, reader: R) -> None:
        with self.changed:
            self._queues[reader] = deque()

    def drop(self, reader: R) -> None:
        """Discards what this reader has read ahead; its puts return False from now on."""
        with self.changed:
            for item in self._queues.pop(reader, ()):
                self._bytes -= item.nbytes if isinstance(item, FetchedRows) else 0
            self._ready = deque(it for it in self._ready if it is not reader)
            self.changed.notify_all()

    @property
    def is_empty(self) -> bool:
        """Whether ``take`` returns nothing now."""
        with self.changed:
            return not self._ready

    def put(self, reader: R, item: FetchedItem) -> bool:
        """Waits for capacity, then puts the item in. False: the reader was dropped."""
        with self.changed:
            while True:
                queue = self._queues.get(reader)
                if queue is None:
                    return False
                if not queue or self._bytes < self._budget or not isinstance(item, FetchedRows):
                    break
                self.changed.wait()
            if not queue:
                self._ready.append(reader)
            queue.append(item)
            self._bytes += item.nbytes if isinstance(item, FetchedRows) else 0
            self.changed.notify_all()
            return True

    def take(self, max_bytes: int) -> tuple[R, FetchedItem] | None:
        """Takes the next item, from the readers in turn; joins small ones of one reader. None: the buffer is empty."""
        with self.changed:
            if not self._ready:
                return None
            reader = self._ready.popleft()
            queue = self._queues[reader]
            item = queue.popleft()
            if isinstance(item, FetchedRows):
                item = self._coalesce(item, queue, max_bytes)
                self._bytes -= item.nbytes
            if queue:
                self._ready.append(reader)
            self.changed.notify_all()
            return reader, item

    @staticmethod
    def _coalesce(item: FetchedRows, queue: deque[FetchedItem], max_bytes: int) -> FetchedRows:
        more = [item]
        size = item.nbytes
        while queue and isinstance(following := queue[0], FetchedRows) and size + following.nbytes <= max_bytes:
            more.append(following)
            size += following.nbytes
            queue.popleft()
        return item if len(more) == 1 else FetchedRows(pa.concat_tables([m.table for m in more]), item.first, size)
