"""What fetchers have read ahead and the consumer has not handed out yet."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from smq_core.errors import SmqError


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages at consecutive offsets from ``first``."""

    table: pa.Table
    first: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.first + int(self.table.num_rows)


@dataclass(frozen=True, slots=True)
class Gone:
    """Offsets that were written once and are not there any more; ``stop`` None: nobody knows how far they went."""

    start: int
    stop: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The segment is sealed at this end, and everything before it was put in."""

    end: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Reading cannot go on."""

    error: SmqError


Item = Rows | Gone | Ended | Failed


class Reading(Protocol):
    """Whoever puts items in; its queue is its own, also when another one reads the same segment later."""

    segment: str


R = TypeVar("R", bound=Reading)


class Inbox(Generic[R]):
    """A queue for each reader under one budget of bytes; a reader with an empty queue may always put one item in."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._bytes = 0
        self._queues: dict[R, deque[Item]] = {}
        self._ready: deque[R] = deque()
        self.changed = threading.Condition()

    def open(self, reader: R) -> None:
        with self.changed:
            self._queues[reader] = deque()

    def drop(self, reader: R) -> None:
        """Forgets what was read ahead; puts of this reader answer False from now on."""
        with self.changed:
            for item in self._queues.pop(reader, ()):
                self._bytes -= item.nbytes if isinstance(item, Rows) else 0
            self._ready = deque(it for it in self._ready if it is not reader)
            self.changed.notify_all()

    def put(self, reader: R, item: Item) -> bool:
        """Waits for room. False: the reader is not wanted any more."""
        with self.changed:
            while True:
                queue = self._queues.get(reader)
                if queue is None:
                    return False
                if not queue or self._bytes < self._budget or not isinstance(item, Rows):
                    break
                self.changed.wait()
            if not queue:
                self._ready.append(reader)
            queue.append(item)
            self._bytes += item.nbytes if isinstance(item, Rows) else 0
            self.changed.notify_all()
            return True

    def take(self, max_bytes: int) -> tuple[R, Item] | None:
        """The next item, the readers in turn; small ones of one reader as one. None: nothing is there."""
        with self.changed:
            if not self._ready:
                return None
            reader = self._ready.popleft()
            queue = self._queues[reader]
            item = queue.popleft()
            if isinstance(item, Rows):
                item = self._join(item, queue, max_bytes)
                self._bytes -= item.nbytes
            if queue:
                self._ready.append(reader)
            self.changed.notify_all()
            return reader, item

    @staticmethod
    def _join(item: Rows, queue: deque[Item], max_bytes: int) -> Rows:
        more = [item]
        size = item.nbytes
        while queue and isinstance(following := queue[0], Rows) and size + following.nbytes <= max_bytes:
            more.append(following)
            size += following.nbytes
            queue.popleft()
        return item if len(more) == 1 else Rows(pa.concat_tables([m.table for m in more]), item.first, size)
