"""Which operations use the disk of the journals, and since when. So a disk that does not answer is noticed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """``since`` is when it began, in seconds."""

    user: object
    since: float


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

    def oldest(self) -> Operation | None:
        """The operation that has begun first, or None if there is none."""
        running = self._since.copy()  # others change it meanwhile
        user = min(running, key=running.__getitem__, default=None)
        return Operation(user, running[user]) if user is not None else None

    def seconds(self, operation: Operation | None) -> float:
        """For how long it has been running; 0 for None."""
        return self._clock() - operation.since if operation is not None else 0.0
