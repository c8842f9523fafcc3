"""When a broker gives back the memory that a burst left to it: not before it has been calm for a while."""

from __future__ import annotations

from collections.abc import Callable

PERIOD = 300.0
"""Seconds that are looked at together."""

LITTLE = 64 * 1024 * 1024
"""Bytes that came in during a calm period, at most."""


class Calm:
    """``look`` is called again and again with the time in seconds; ``came_in`` counts all bytes that ever came in."""

    def __init__(self, came_in: Callable[[], int]) -> None:
        self._came_in = came_in
        self._began: float | None = None
        self._had = 0
        self._busy = False

    def look(self, now: float) -> bool:
        """True once after a burst, when a whole calm period has passed."""
        if self._began is not None and now - self._began < PERIOD:
            return False
        came_in = self._came_in()
        calm = came_in - self._had < LITTLE
        gives_back = calm and self._busy
        self._began, self._had, self._busy = now, came_in, not calm
        return gives_back
