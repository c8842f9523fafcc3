"""When a broker returns memory to the system after a burst: once it has been idle for a while."""

from __future__ import annotations

from collections.abc import Callable

# The period over which received bytes are counted.
IDLE_PERIOD_SECONDS = 300.0

# The most bytes that are received in an idle period.
IDLE_MAX_BYTES = 64 * 1024 * 1024


class MemoryTrimmer:
    """``should_trim`` is called periodically, with the time in seconds. ``bytes_received`` returns the total so far."""

    def __init__(self, bytes_received: Callable[[], int]) -> None:
        self._bytes_received = bytes_received
        self._began: float | None = None
        self._previous_bytes = 0
        self._busy = False

    def should_trim(self, now: float) -> bool:
        """True once after a burst, when a whole idle period has passed."""
        if self._began is not None and now - self._began < IDLE_PERIOD_SECONDS:
            return False
        bytes_received = self._bytes_received()
        idle = bytes_received - self._previous_bytes < IDLE_MAX_BYTES
        trim = idle and self._busy
        self._began, self._previous_bytes, self._busy = now, bytes_received, not idle
        return trim
