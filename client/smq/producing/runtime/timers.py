"""One thread that calls functions at given times, for all producers of a client."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterable

from smq_storage.process.locks import make_rlock, requires_lock

log = logging.getLogger(__name__)

# What is due so soon is called together, because each wake-up of the thread costs as much as several calls.
SLACK_SECONDS = 0.0003


class Timers:
    """Calls must be quick, because they run one after the other. The thread starts with the first one."""

    def __init__(self) -> None:
        self._phase = random.random()
        self._lock = make_rlock()  # a signal handler of the program may call into the client
        self._wake = threading.Lock()
        """Released when the thread should look again. To wait for a condition takes several times as long."""
        self._wake.acquire()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._begun_at = float("-inf")
        """When a producer last began a batch."""
        self._wakes_at = 0.0
        """When the thread, if it waits, looks again by itself; 0 while it does not wait."""
        self._after: dict[Callable[[], None], None] = {}
        self._closed = False

    def call_at(self, at: float, call: Callable[[], None]) -> None:
        """Calls ``call`` once, at or a little before ``at`` (monotonic seconds), unless this is closed before."""
        with self._lock:
            if self._closed:
                return
            heapq.heappush(self._calls, (at, next(self._numbers), call))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="smq-timers", daemon=True)
                self._thread.start()
            elif at < self._wakes_at:
                self._wakes_at = at
                self._wake_thread()

    def call_after(self, call: Callable[[], None]) -> bool:
        """From a timer's call: calls ``call`` once after all calls that are due now. False in any other thread."""
        if threading.current_thread() is not self._thread:
            return False
        self._after[call] = None
        return True

    def begin_batch(self, now: float, linger: float) -> float:
        """Returns when a batch that begins ``now`` should be sent, in monotonic seconds: at the next tick.

        Or at once if no producer of the client has begun one for that time: then there is nothing to wait for.
        """
        was_quiet = now - self._begun_at >= linger
        self._begun_at = now
        return now if was_quiet else self.next_tick(now, linger)

    def next_tick(self, now: float, interval: float) -> float:
        """The first instant after ``now`` of those that come once in ``interval``, in monotonic seconds.

        They are the same for all producers of a client, so that their batches go out together, and others for each
        client, so that brokers do not get the batches of all clients at once.
        """
        return self._phase + (math.floor((now - self._phase) / interval) + 1) * interval

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.call_at(time.monotonic() + seconds, call)

    def close(self) -> None:
        """Ends the thread; what is not due yet is never called. Repeatable, also from a call."""
        with self._lock:
            self._closed = True
            self._calls.clear()
            self._wake_thread()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def _run(self) -> None:
        while not self._closed:
            due, seconds = self._take_due()
            if due:
                self._call_all(due)
                while self._after:
                    after, self._after = self._after, {}
                    self._call_all(after)
            else:
                self._wake.acquire(timeout=seconds)

    @staticmethod
    def _call_all(calls: Iterable[Callable[[], None]]) -> None:
        for call in calls:
            try:
                call()
            except Exception:
                log.exception("a timer's call failed")

    @requires_lock("_lock")
    def _wake_thread(self) -> None:
        if self._wake.locked():
            self._wake.release()

    def _take_due(self) -> tuple[list[Callable[[], None]], float]:
        """The calls that are due. If there are none: for how many seconds to wait, -1 if until more come."""
        with self._lock:
            now = time.monotonic()
            due: list[Callable[[], None]] = []
            while self._calls and self._calls[0][0] <= now + SLACK_SECONDS:
                due.append(heapq.heappop(self._calls)[2])
            if due or self._closed:
                self._wakes_at = 0.0
                return due, 0.0
            self._wakes_at = self._calls[0][0] if self._calls else float("inf")
            return due, self._wakes_at - now if self._calls else -1.0
