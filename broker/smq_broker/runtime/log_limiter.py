"""Limits how often one kind of line is logged, so that a faulty client cannot fill the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from smq_storage.process.locks import make_lock

# Kinds that are remembered. Beyond that the oldest one is forgotten.
MAX_KINDS = 1000


class LogLimiter:
    """``admit`` lets the first line of a kind pass, then one in each interval. Safe from many threads."""

    def __init__(self, interval_seconds: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval_seconds
        self._clock = clock
        self._lock = make_lock()
        self._kinds: dict[Hashable, tuple[float, int]] = {}

    def admit(self, kind: Hashable) -> int | None:
        """None if the line must not be logged now; otherwise how many lines of this kind were left out before it."""
        now = self._clock()
        with self._lock:
            logged_at, left_out = self._kinds.get(kind, (None, 0))
            if logged_at is not None and now - logged_at < self._interval:
                self._kinds[kind] = logged_at, left_out + 1
                return None
            self._kinds.pop(kind, None)
            while len(self._kinds) >= MAX_KINDS:
                del self._kinds[next(iter(self._kinds))]
            self._kinds[kind] = now, 0
            return left_out
