"""Time in microseconds since the Unix epoch, that never goes back within a process."""

from __future__ import annotations

import threading
import time


class Clock:
    """The wall clock, except when it is set back: then time goes on from where it was."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        return (time.monotonic_ns() + self._offset) // 1000

    def follow(self) -> None:
        """Takes over a wall clock that was set forward. To be called now and then."""
        with self._lock:
            self._offset = max(self._offset, time.time_ns() - time.monotonic_ns())
