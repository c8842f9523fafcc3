"""The leader's clock: microseconds since the Unix epoch that never jump.

It is the wall time at the start of the process plus the monotonic time since. Intervals are right even if the machine's
clock is set, and the values are still dates. If the machine's clock was wrong at the start, the dates stay wrong, so
nothing is deleted on their word alone (``cleanup/filer_clock.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

# Returns microseconds since the Unix epoch.
Clock: TypeAlias = Callable[[], int]

PAUSE_DETECTED_AFTER_US = 1_000_000

_BEGAN_WALL = time.time_ns()
_BEGAN = time.monotonic_ns()


def now() -> int:
    """Microseconds since the Unix epoch; never goes back."""
    return (_BEGAN_WALL + time.monotonic_ns() - _BEGAN) // 1000


class PauseAwareClock:
    """A clock that notices when this process was paused (SIGSTOP, a suspended machine, a blocked event loop).

    The leader's loop reads it every 100 ms, so a gap of more than a second between two readings is a pause. Listeners
    get its length before any reader gets a time after it. So nobody counts the time in which nothing could arrive as
    time in which others were silent, whichever part runs first after the pause.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock()
        self._listeners: list[Callable[[int], None]] = []

    def on_pause(self, listener: Callable[[int], None]) -> None:
        """Calls ``listener`` with the microseconds of each pause. A listener must not read this clock."""
        self._listeners.append(listener)

    def __call__(self) -> int:
        now = self._clock()
        gap, self._last = now - self._last, now
        if gap > PAUSE_DETECTED_AFTER_US:
            for listener in self._listeners:
                listener(gap)
        return now
