"""Logs that readers wait for the filer, and when it answers again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from smq_core.errors import StoreUnavailable
from smq_storage.process.locks import make_lock

log = logging.getLogger(__name__)

FIRST_WARNING_SECONDS = 2.0
MIN_INTERVAL_SECONDS = 10.0
MAX_INTERVAL_SECONDS = 600.0
# The time without a failure after which what failed was given up. A read that is repeated fails more often.
FORGET_SECONDS = 120.0


class FilerHealth:
    """One for all readers of a client, because all wait for the same filer. Safe from many threads.

    The first warning comes when reads have failed for FIRST_WARNING_SECONDS, the next ones at intervals that double.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = make_lock()
        self._failing_since: float | None = None
        self._last_failure_at = 0.0
        self._next_warning_at = 0.0
        self._interval = 0.0
        """Between the last warning and the next one; 0 before the first."""

    def failed(self, error: StoreUnavailable, since: float) -> None:
        """A read failed, and will be repeated. ``since``: when that reader had the filer's last answer."""
        now = self._clock()
        with self._lock:
            if self._failing_since is None or now - self._last_failure_at > FORGET_SECONDS:
                self._failing_since = since
                self._next_warning_at = since + FIRST_WARNING_SECONDS
                self._interval = 0.0
            self._last_failure_at = now
            if now < self._next_warning_at:
                return
            self._interval = min(MAX_INTERVAL_SECONDS, max(MIN_INTERVAL_SECONDS, 2 * self._interval))
            self._next_warning_at = now + self._interval
            seconds = now - self._failing_since
        log.warning("reads from the filer have failed for %.0f s and are repeated: %s", seconds, error.message)

    def answered(self) -> None:
        """A read succeeded."""
        if self._failing_since is None:
            return
        with self._lock:
            since, warned, self._failing_since = self._failing_since, self._interval > 0, None
        if since is not None and warned:
            log.info("the filer answers again after %.0f s", self._clock() - since)
