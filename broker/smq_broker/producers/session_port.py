"""What the sessions of one lane share: their replies, and how many bytes may wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from smq_broker.access.callers import StreamQuota
from smq_broker.producers.upload_checker import UploadChecker
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.lock_order import BrokerLock
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_storage.process.locks import make_rlock, requires_lock

if TYPE_CHECKING:
    from smq_broker.producers.producer_session import ProducerSession

# What may wait in all sessions of a lane. Beyond it a session of a small lane ends, and its producer sends again later.
# A bulk lane stops reading.
MAX_WAITING_BYTES = 8 << 20
# How often a lane that has stopped reading looks whether it still has to. A quota may change meanwhile.
CAPACITY_CHECK_SECONDS = 1.0


class SessionPort:
    """``lock`` guards all of it. ``accepting_batches`` is cleared while this process shuts down."""

    def __init__(
        self,
        *,
        is_bulk: bool,
        accepting_batches: threading.Event,
        uploads: UploadChecker,
        broker_metrics: BrokerMetrics,
        threads: ThreadSupervisor,
    ) -> None:
        self.lock = make_rlock(BrokerLock.STREAM)
        self.wake = threading.Condition(self.lock)
        """Notified for the thread that writes replies."""
        self._has_capacity = threading.Condition(self.lock)
        self.changed: dict[ProducerSession, None] = {}
        """Sessions that may have replies, in the order of the changes."""
        self.waiting: dict[ProducerSession, None] = {}
        """Sessions with batches that wait."""
        self.unacked: dict[ProducerSession, None] = {}
        """Sessions with batches that are in the log and not acked yet."""
        self.is_urgent = False
        """Whether a session has a reply that is no ack."""
        self.is_bulk = is_bulk
        self.accepting_batches = accepting_batches
        self.uploads = uploads
        self._waiting_bytes = 0
        self._closed = False
        self._metrics = broker_metrics
        self._threads = threads

    def start_upload_check(self, subject: str, check: Callable[[], None], on_death: Callable[[], None]) -> None:
        """Raises Unavailable if no more threads can start."""
        self._threads.start(Task(kind="upload-check", run=check, subject=subject, on_death=on_death, restarts=False))

    def count_sessions(self, change: int) -> None:
        self._metrics.sessions.inc(change)

    def count_wait(self) -> None:
        """A session has begun to wait for capacity."""
        self._metrics.waits.inc()

    @requires_lock("wake")
    def add_waiting(self, session: ProducerSession, nbytes: int, *, may_exceed: bool) -> bool:
        """Counts a batch that waits. False if too much waits already."""
        exceeds = self._waiting_bytes > 0 and self._waiting_bytes + nbytes > MAX_WAITING_BYTES
        if exceeds and not (self.is_bulk and may_exceed):
            return False
        self._waiting_bytes += nbytes
        if session not in self.waiting:
            self.waiting[session] = None
            self.wake.notify()
        return True

    @requires_lock("wake")
    def release_waiting(self, nbytes: int) -> None:
        self._waiting_bytes -= nbytes
        self._has_capacity.notify()

    @requires_lock("wake")
    def take_waiting(self) -> list[ProducerSession]:
        """The sessions with batches that wait. Another one is the first at each call, because the first takes most."""
        waiting = list(self.waiting)
        if len(waiting) > 1:
            del self.waiting[waiting[0]]
            self.waiting[waiting[0]] = None
        return waiting

    def wait_for_capacity(self) -> None:
        """On a bulk lane: waits while too much waits for capacity, so that nothing more is read meanwhile.

        What waits for segments that are not open yet is bounded, and holds up nobody.
        """
        if not self.is_bulk:
            return
        with self.wake:
            while (
                self._waiting_bytes > MAX_WAITING_BYTES
                and not self._closed
                and any(session.is_open for session in self.waiting)
            ):
                self._has_capacity.wait(CAPACITY_CHECK_SECONDS)

    def wait_for_quota(self, quota: StreamQuota) -> bool:
        """Waits while the lane's quota is used up. False if nobody reads replies any more."""
        with self.wake:
            while not self._closed and (pause := quota.pause_seconds()) > 0:
                self._has_capacity.wait(min(pause, CAPACITY_CHECK_SECONDS))
            return not self._closed

    def close(self) -> None:
        """Nobody reads replies any more."""
        with self.wake:
            self._closed = True
            self._has_capacity.notify()
