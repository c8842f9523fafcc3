"""When reading a segment last came further, and what is logged while it does not."""

from __future__ import annotations

import logging
import time

from smq.transport.filer_health import FilerHealth
from smq_core.errors import SmqError, StoreUnavailable

log = logging.getLogger(__name__)

# After each such period without progress, a warning with the cause is logged. That of the filer is FilerHealth's.
WARN_AFTER_SECONDS = 5.0


class FetchProgress:
    def __init__(self, segment: str, filer_health: FilerHealth) -> None:
        self.filer_error: StoreUnavailable | None = None
        """Why the last read from the filer failed; None if it did not."""
        self._segment = segment
        self._filer_health = filer_health
        self._last_at = time.monotonic()

    def tail_answered(self) -> None:
        self._last_at = time.monotonic()
        self.filer_error = None

    def filer_answered(self) -> None:
        self._last_at = time.monotonic()
        self.filer_error = None
        self._filer_health.answered()

    def value_fetched(self) -> None:
        """A large value has come or failed, which may have taken long."""
        self._last_at = time.monotonic()

    def failed(self, error: SmqError) -> None:
        """Logs why an attempt failed: as a warning if nothing has worked for a while."""
        if isinstance(error, StoreUnavailable):
            self.filer_error = error
            self._filer_health.failed(error, self._last_at)
        elif time.monotonic() - self._last_at < WARN_AFTER_SECONDS:
            log.info("reading %s: %s", self._segment, error.message)
        else:
            log.warning("reading %s makes no progress and is retried: %s", self._segment, error.message)
            self._last_at = time.monotonic()
