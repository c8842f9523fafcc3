"""Delays between attempts that grow while the attempts fail."""

from __future__ import annotations


class Backoff:
    """The delay before the next attempt: 0 until a failure, then ``min_seconds``, doubled up to ``max_seconds``."""

    def __init__(self, min_seconds: float, max_seconds: float) -> None:
        self._min_seconds = min_seconds
        self._max_seconds = max_seconds
        self.seconds = 0.0

    def reset(self) -> None:
        """Starts over after a success."""
        self.seconds = 0.0

    def increase(self) -> float:
        """Sets the delay after a failure and returns it."""
        self.seconds = min(self._max_seconds, max(self._min_seconds, self.seconds * 2))
        return self.seconds
