"""Brokers that refuse to open segments are given none for a while, longer each time.

A leader may believe in an incarnation that is no more, for as long as it has not fallen silent; or a broker refuses all
that it is asked. With no other broker to choose it would be placed on, refuse, and be replaced again and again, as fast
as layouts can be put.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST_REST = 100_000
LONGEST_REST = 10_000_000
FORGOTTEN_AFTER = 60_000_000


@dataclass(slots=True)
class Refusals:
    """What one topic's leader was refused, by incarnation. Times are microseconds."""

    _rests: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How often in a row, and until when it rests."""

    def refused(self, incarnation: str, now: int) -> None:
        """It will not open a segment. What it was asked before its rest began does not count again."""
        self._rests = {name: it for name, it in self._rests.items() if abs(now - it[1]) < FORGOTTEN_AFTER}
        times = self._rests.get(incarnation, (0, 0))[0]
        if incarnation not in self.resting(now):
            self._rests[incarnation] = times + 1, now + min(FIRST_REST << times, LONGEST_REST)

    def opened(self, incarnation: str) -> None:
        """It does open segments."""
        self._rests.pop(incarnation, None)

    def resting(self, now: int) -> set[str]:
        """Those that shall get no segment now."""
        return {name for name, (_, until) in self._rests.items() if now < until <= now + LONGEST_REST}
