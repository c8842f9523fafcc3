"""Time in microseconds since the Unix epoch. It never goes back within a process."""

from __future__ import annotations

import time

from smq_storage.process.locks import make_lock


class Clock:
    """The wall clock. If that is set back, this clock continues from where it was."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        return (time.monotonic_ns() + self._offset) // 1000

    def follow(self) -> None:
        """Adopts a wall clock that was set forward. Call it periodically."""
        with self._lock:
            self._offset = max(self._offset, time.time_ns() - time.monotonic_ns())
