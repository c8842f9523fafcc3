"""Readers of one client that are at the tail of the same segment share one stream.

A frame costs its broker and its reader about 0.2 ms, whatever is in it, and the broker has to send it once for each
stream. So the first reader that has a stream publishes what it gets, and those that have come as far subscribe. Whoever
is behind, or is too slow, reads a stream of its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa

from smq.reading.tail_stream import TailFrame

MAX_QUEUED_BYTES = 4 << 20
"""Of one subscriber. One that has more to read is too slow, and its subscription ends."""

TailKey = tuple[str, str]
"""Uid of the topic, segment."""


class SharedTails:
    """The tails that readers of one client publish. Safe from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._published: dict[TailKey, PublishedTail] = {}

    def publish(self, key: TailKey, position: int) -> PublishedTail | None:
        """Lets others subscribe to the caller's stream from ``position`` on. None if another reader's is published.

        The caller must not block between the frames: it ends the publication first.
        """
        with self._lock:
            if key in self._published:
                return None
            made = self._published[key] = PublishedTail(self, key, position)
            return made

    def subscribe(self, key: TailKey, position: int) -> TailSubscription | None:
        """What is published from ``position`` on. None if nothing is, or if it begins later, or is behind itself."""
        with self._lock:
            published = self._published.get(key)
            return None if published is None else published._subscribe(position)

    def _remove(self, published: PublishedTail) -> None:
        with self._lock:
            if self._published.get(published.key) is published:
                del self._published[published.key]


class PublishedTail:
    """What one reader gets by its stream. Made by :meth:`SharedTails.publish`, for that reader."""

    def __init__(self, tails: SharedTails, key: TailKey, position: int) -> None:
        self.key = key
        self._tails = tails
        self._lock = threading.Lock()
        self._position = position
        self._has_caught_up = False
        self._ended = False
        self._subscriptions: list[TailSubscription] = []

    @property
    def readers(self) -> int:
        """How many readers share the stream, with its own."""
        return 1 + len(self._subscriptions)

    def put(self, frame: TailFrame) -> None:
        """Passes the next frame on to the subscribers. Those that are too slow lose their subscription."""
        with self._lock:
            self._position = max(self._position, _end(frame))
            self._has_caught_up = self._has_caught_up or self._position >= frame.watermark
            if not self._subscriptions:
                return
            nbytes = 0 if frame.table is None else int(frame.table.nbytes)
            self._subscriptions = [it for it in self._subscriptions if it._put(frame, nbytes)]

    def end(self) -> None:
        """Ends the subscriptions, after what was put. Repeatable."""
        self._tails._remove(self)
        with self._lock:
            self._ended = True
            for subscription in self._subscriptions:
                subscription.close()
            self._subscriptions = []

    def _subscribe(self, position: int) -> TailSubscription | None:
        with self._lock:
            # A subscriber that is ahead gets some rows again, which it leaves out.
            if self._ended or not self._has_caught_up or position < self._position:
                return None
            made = TailSubscription()
            self._subscriptions.append(made)
            return made


class TailSubscription:
    """The frames that another reader publishes. Made by :meth:`SharedTails.subscribe`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frames: deque[TailFrame] = deque()
        self._bytes = 0
        self._ended = False

    def take(self) -> list[TailFrame]:
        """Waits for frames and returns all that there are; nothing at the end of the subscription."""
        with self._changed:
            while not self._frames and not self._ended:
                self._changed.wait()
            found = list(self._frames)
            self._frames.clear()
            self._bytes = 0
            return found

    def close(self) -> None:
        """Adds no more frames. Repeatable, from any thread."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _put(self, frame: TailFrame, nbytes: int) -> bool:
        """False if the subscription has ended."""
        with self._changed:
            if self._bytes + nbytes > MAX_QUEUED_BYTES and self._frames:
                self._ended = True
            if not self._ended:
                self._frames.append(frame)
                self._bytes += nbytes
            self._changed.notify()
            return not self._ended


def join_frames(frames: Iterable[TailFrame]) -> Iterator[TailFrame]:
    """The same messages in fewer frames."""
    rows: list[TailFrame] = []
    for frame in frames:
        if rows and (not _has_only_rows(frame) or frame.first != _end(rows[-1])):
            yield _joined(rows)
            rows = []
        if _has_only_rows(frame):
            rows.append(frame)
        else:
            yield frame
    if rows:
        yield _joined(rows)


def _has_only_rows(frame: TailFrame) -> bool:
    return frame.table is not None and frame.referenced is None and frame.sealed is None and frame.trimmed_to is None


def _end(frame: TailFrame) -> int:
    return frame.first if frame.table is None else frame.first + int(frame.table.num_rows)


def _joined(frames: list[TailFrame]) -> TailFrame:
    if len(frames) == 1:
        return frames[0]
    return TailFrame(pa.concat_tables([it.table for it in frames]), frames[0].first, frames[-1].watermark)
