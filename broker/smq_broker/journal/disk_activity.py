"""Which operations use the disk of the journals, and since when. So a disk that does not answer is noticed."""

from __future__ import annotations

import time
from collections.abc import Callable


class DiskActivity:
    """Of all journals of a process. Safe from many threads. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[object, float] = {}

    def begin(self, user: object) -> bool:
        """An operation of this user begins. False if it is part of another one, which has begun before."""
        if user in self._since:
            return False
        self._since[user] = self._clock()
        return True

    def end(self, user: object) -> None:
        """The operation that ``begin`` returned True for has ended."""
        del self._since[user]

    def oldest(self) -> tuple[object, float] | None:
        """The operation that has begun first: its user, and when that was; None if there is none."""
        running = self._since.copy().items()  # others change it meanwhile
        return min(running, key=lambda it: it[1]) if running else None

    def busy_seconds(self) -> float:
        """For how long the oldest operation has been running."""
        oldest = self.oldest()
        return self._clock() - oldest[1] if oldest is not None else 0.0
