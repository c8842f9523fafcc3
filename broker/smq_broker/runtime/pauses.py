"""Notices that this process was paused (SIGSTOP, a suspended machine, a machine without CPU to spare)."""

from __future__ import annotations

import time
from collections.abc import Callable

# Shorter than the time after which the leader treats a broker without reports as unresponsive.
PAUSE_SECONDS = 2.0


class PauseCounter:
    """Counts pauses: gaps of more than PAUSE_SECONDS between two readings. A thread reads it every 100 ms.

    Safe from many threads without a lock. After a pause no reading returns the former count, whichever thread reads
    first, because the count changes before the time of the last reading does.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._count = 0

    def read(self) -> int:
        """The number of pauses until now; two threads that notice one pause at once may count it twice."""
        now = self._clock()
        if now - self._last > PAUSE_SECONDS:
            self._count += 1
        self._last = now
        return self._count
