"""A stream of an identity in a secure release, which keeps to its quota."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from smq_core.access.quotas import QuotaMeter


class LimitedStream:
    """See ``StreamQuota``. ``lock`` guards the meter, which all streams of the identity for one topic share.

    ``count_throttled`` gets the seconds for which the stream waited. Raises QuotaExceeded.
    """

    def __init__(self, meter: QuotaMeter, lock: threading.Lock, count_throttled: Callable[[float], object]) -> None:
        self.left_seconds = 0.0
        self._meter = meter
        self._lock = lock
        self._count_throttled = count_throttled
        self._paused_at: float | None = None
        """When ``pause_seconds`` was above 0 the last time, if it was."""
        with lock:
            self._usage = meter.open_stream()

    @property
    def is_limited(self) -> bool:
        return self._meter.quota.limits_rates

    def use(self, nbytes: int, messages: int) -> None:
        with self._lock:
            self._usage = self._meter.use(nbytes, messages, time.monotonic())

    def pause_seconds(self) -> float:
        if not self.is_limited and self._paused_at is None:
            return 0.0
        now = time.monotonic()
        with self._lock:
            left = self.left_seconds = self._meter.wait_seconds(self._usage, now)
        if self._paused_at is not None:
            self._count_throttled(now - self._paused_at)
        self._paused_at = now if left > 0 else None
        return left

    def close(self) -> None:
        with self._lock:
            self._meter.close_stream()
