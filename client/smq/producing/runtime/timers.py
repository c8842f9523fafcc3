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

log = logging.getLogger(__name__)

SLACK_SECONDS = 0.0003
"""What is due so soon is called together, because each wake-up of the thread costs as much as several calls."""


class Timers:
    """Calls must be quick, because they run one after the other. The thread starts with the first one."""

    def __init__(self) -> None:
        self._phase = random.random()
        self._wake = threading.Condition()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0
        self._after: dict[Callable[[], None], None] = {}
        self._closed = False

    def call_at(self, at: float, call: Callable[[], None]) -> None:
        """Calls ``call`` once, at or a little before ``at`` (monotonic seconds), unless this is closed before."""
        with self._wake:
            if self._closed:
                return
            heapq.heappush(self._calls, (at, next(self._numbers), call))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="smq-timers", daemon=True)
                self._thread.start()
            elif at < self._wakes_at:
                self._wakes_at = at
                self._wake.notify()

    def call_after(self, call: Callable[[], None]) -> bool:
        """From a timer's call: calls ``call`` once after all calls that are due now. False in any other thread."""
        if threading.current_thread() is not self._thread:
            return False
        self._after[call] = None
        return True

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
        with self._wake:
            self._closed = True
            self._calls.clear()
            self._wake.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    def _run(self) -> None:
        while True:
            with self._wake:
                due = self._wait_for_calls()
            if not due:
                return
            self._call_all(due)
            while self._after:
                after, self._after = self._after, {}
                self._call_all(after)

    @staticmethod
    def _call_all(calls: Iterable[Callable[[], None]]) -> None:
        for call in calls:
            try:
                call()
            except Exception:
                log.exception("a timer's call failed")

    def _wait_for_calls(self) -> list[Callable[[], None]]:
        """The calls that are due, at least one; none once this is closed. The caller holds the lock."""
        while not self._closed:
            now = time.monotonic()
            due: list[Callable[[], None]] = []
            while self._calls and self._calls[0][0] <= now + SLACK_SECONDS:
                due.append(heapq.heappop(self._calls)[2])
            if due:
                self._wakes_at = 0.0
                return due
            self._wakes_at = self._calls[0][0] if self._calls else float("inf")
            self._wake.wait(self._wakes_at - now if self._calls else None)
        return []
