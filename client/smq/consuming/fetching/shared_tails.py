"""Readers of one client that are at the tail of the same segment share one stream.

A frame costs its broker and its reader about 0.2 ms, whatever is in it, and the broker has to send it once for each
stream. So the first reader that has a stream publishes what it gets, and those that have come as far subscribe. Whoever
is behind, or is too slow, reads its own stream.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from smq.lock_order import ClientLock
from smq.reading.tail_stream import TailFrame
from smq_storage.process.locks import make_lock

log = logging.getLogger(__name__)

# Uid of the topic, segment.
TailKey = tuple[str, str]


class SharedTails:
    """The tails that readers of one client publish. Safe from many threads."""

    def __init__(self) -> None:
        self._lock = make_lock(ClientLock.CONSUMER_TAILS)
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

    def subscribe(self, key: TailKey, position: int, receive: Callable[[TailFrame], bool]) -> TailSubscription | None:
        """What is published from ``position`` on. None if nothing is, or if it begins later, or is behind itself.

        ``receive`` is called with each frame, in the publisher's thread, so it must not wait. It returns whether it
        wants more. It may get rows from before ``position``.
        """
        with self._lock:
            published = self._published.get(key)
            return None if published is None else published._subscribe(position, receive)

    def _remove(self, published: PublishedTail) -> None:
        with self._lock:
            if self._published.get(published.key) is published:
                del self._published[published.key]


class PublishedTail:
    """What one reader gets by its stream. Made by :meth:`SharedTails.publish`, for that reader."""

    def __init__(self, tails: SharedTails, key: TailKey, position: int) -> None:
        self.key = key
        self._tails = tails
        self._lock = make_lock(ClientLock.PUBLISHED_TAIL)
        self._position = position
        self._has_caught_up = False
        self._ended = False
        self._subscriptions: list[TailSubscription] = []

    @property
    def readers(self) -> int:
        """How many readers share the stream, with its own."""
        return 1 + len(self._subscriptions)

    def put(self, frame: TailFrame) -> None:
        """Passes the next frame on to the subscribers."""
        with self._lock:
            rows = 0 if frame.table is None else int(frame.table.num_rows)
            self._position = max(self._position, frame.first + rows)
            self._has_caught_up = self._has_caught_up or self._position >= frame.watermark
            if self._subscriptions:
                self._subscriptions = [it for it in self._subscriptions if it._deliver(frame)]

    def end(self) -> None:
        """Ends the subscriptions. Repeatable."""
        self._tails._remove(self)
        with self._lock:
            self._ended = True
            for subscription in self._subscriptions:
                subscription.close()
            self._subscriptions = []

    def _subscribe(self, position: int, receive: Callable[[TailFrame], bool]) -> TailSubscription | None:
        with self._lock:
            if self._ended or not self._has_caught_up or position < self._position:
                return None
            made = TailSubscription(receive)
            self._subscriptions.append(made)
            return made


class TailSubscription:
    """One reader's part in another one's stream. Made by :meth:`SharedTails.subscribe`."""

    def __init__(self, receive: Callable[[TailFrame], bool]) -> None:
        self._receive = receive
        self._delivering = make_lock(ClientLock.DELIVERING)
        self._ended = threading.Event()

    def wait(self) -> None:
        """Returns when the subscription has ended. Nothing is received from then on."""
        self._ended.wait()
        with self._delivering:  # the last frame is received
            pass

    def close(self) -> None:
        """Ends the subscription without waiting for anything. Repeatable, from any thread."""
        self._ended.set()

    def _deliver(self, frame: TailFrame) -> bool:
        """False if the subscription has ended."""
        with self._delivering:
            if not self._ended.is_set() and not self._receives(frame):
                self._ended.set()
            return not self._ended.is_set()

    def _receives(self, frame: TailFrame) -> bool:
        try:
            return self._receive(frame)
        except Exception:  # it must not end the publisher's reading; the subscriber meets it again by itself
            log.exception("a frame from offset %s on could not be received", frame.first)
            return False
