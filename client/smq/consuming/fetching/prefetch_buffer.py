"""The buffer of what fetchers have read ahead and the consumer has not returned yet."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from smq.lock_order import ClientLock
from smq_core.errors import SmqError
from smq_core.model.loss import Loss
from smq_storage.process.locks import make_rlock


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """Messages at consecutive offsets from ``first``."""

    table: pa.Table
    first: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.first + int(self.table.num_rows)

    def split(self, rows: int) -> tuple[FetchedRows, FetchedRows]:
        """The first ``rows`` of more rows, and the others."""
        nbytes = self.nbytes * rows // int(self.table.num_rows)
        head = FetchedRows(self.table.slice(0, rows), self.first, nbytes)
        return head, FetchedRows(self.table.slice(rows), self.first + rows, self.nbytes - nbytes)


@dataclass(frozen=True, slots=True)
class FetchedLoss:
    """Offsets that were written and no longer exist; ``file`` had them, if it alone is gone or was altered."""

    loss: Loss
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
    """One queue per reader, with a shared budget of bytes. A reader with an empty queue may always put one item in.

    ``changed`` is notified when there is something to take and there was nothing before, when there is capacity again,
    and when a reader is dropped. Buffers may share one.
    """

    def __init__(self, budget: int, changed: threading.Condition | None = None) -> None:
        self._budget = budget
        self._bytes = 0
        self._queues: dict[R, deque[FetchedItem]] = {}
        self._ready: deque[R] = deque()
        self._paused: set[R] = set()
        self.changed = changed or threading.Condition(make_rlock(ClientLock.CONSUMER))

    def open(self, reader: R) -> None:
        with self.changed:
            self._queues[reader] = deque()

    def drop(self, reader: R) -> None:
        """Discards what this reader has read ahead; its puts return False from now on."""
        with self.changed:
            for item in self._queues.pop(reader, ()):
                self._bytes -= item.nbytes if isinstance(item, FetchedRows) else 0
            self._ready = deque(it for it in self._ready if it is not reader)
            self._paused.discard(reader)
            self.changed.notify_all()

    def pause(self, reader: R) -> None:
        """From now on ``take`` returns nothing of this reader. What it has read ahead stays, and counts."""
        with self.changed:
            if reader in self._queues:
                self._paused.add(reader)
                self._ready = deque(it for it in self._ready if it is not reader)

    def resume(self, reader: R) -> None:
        """Ends ``pause``."""
        with self.changed:
            if reader in self._paused:
                self._paused.discard(reader)
                if self._queues[reader]:
                    self._ready.append(reader)
                self.changed.notify_all()

    @property
    def is_empty(self) -> bool:
        """Whether ``take`` returns nothing now."""
        with self.changed:
            return not self._ready

    def put(self, reader: R, item: FetchedItem) -> bool:
        """Waits for capacity, then puts the item in. False: the reader was dropped."""
        with self.changed:
            while reader in self._queues:
                if self.try_put(reader, item):
                    return True
                self.changed.wait()
            return False

    def try_put(self, reader: R, item: FetchedItem) -> bool:
        """Puts the item in. False: there is no capacity, or the reader was dropped."""
        with self.changed:
            queue = self._queues.get(reader)
            if queue is None or (queue and self._bytes >= self._budget and isinstance(item, FetchedRows)):
                return False
            if not queue and reader not in self._paused:
                if not self._ready:
                    self.changed.notify_all()
                self._ready.append(reader)
            queue.append(item)
            self._bytes += item.nbytes if isinstance(item, FetchedRows) else 0
            return True

    def take(self, max_bytes: int, max_rows: int | None = None) -> tuple[R, FetchedItem] | None:
        """Takes the next item, from the readers in turn; joins small ones of one reader. None: the buffer is empty.

        An item with more rows than ``max_rows`` is taken in parts.
        """
        with self.changed:
            if not self._ready:
                return None
            reader = self._ready.popleft()
            queue = self._queues[reader]
            item = queue.popleft()
            if self._bytes >= self._budget:
                self.changed.notify_all()
            if isinstance(item, FetchedRows):
                item = self._coalesce(item, queue, max_bytes, max_rows)
                if max_rows is not None and item.table.num_rows > max_rows:
                    item, rest = item.split(max_rows)
                    queue.appendleft(rest)
                self._bytes -= item.nbytes
            if queue:
                self._ready.append(reader)
            return reader, item

    @staticmethod
    def _coalesce(item: FetchedRows, queue: deque[FetchedItem], max_bytes: int, max_rows: int | None) -> FetchedRows:
        more = [item]
        size, rows = item.nbytes, item.table.num_rows
        while (
            queue
            and isinstance(following := queue[0], FetchedRows)
            and size + following.nbytes <= max_bytes
            and (max_rows is None or rows < max_rows)
        ):
            more.append(following)
            size, rows = size + following.nbytes, rows + following.table.num_rows
            queue.popleft()
        return item if len(more) == 1 else FetchedRows(pa.concat_tables([m.table for m in more]), item.first, size)
