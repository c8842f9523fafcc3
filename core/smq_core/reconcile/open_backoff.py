"""A broker that refuses to open segments receives none during a cooldown, which grows with each refusal.

The leader considers a dead incarnation alive until its reports are overdue, and a live broker may refuse every request.
If there is no other broker, segments would be placed on it and moved away again as fast as layouts can be written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from smq_core.model.entities import MILLISECOND, SECOND, Micros

FIRST_COOLDOWN: Micros = 100 * MILLISECOND
MAX_COOLDOWN: Micros = 10 * SECOND
BACKOFF_RESET_AFTER: Micros = 60 * SECOND


@dataclass(slots=True)
class OpenBackoff:
    """The refusals that one topic's reconciler received, by incarnation."""

    _cooldowns: dict[str, tuple[int, Micros]] = field(default_factory=dict)
    """The number of refusals in a row, and the end of the cooldown."""

    def refused(self, incarnation: str, now: Micros) -> None:
        """The incarnation refused to open a segment. A refusal during its cooldown does not extend the cooldown."""
        self._cooldowns = {name: it for name, it in self._cooldowns.items() if abs(now - it[1]) < BACKOFF_RESET_AFTER}
        times = self._cooldowns.get(incarnation, (0, 0))[0]
        if incarnation not in self.cooling_down(now):
            self._cooldowns[incarnation] = times + 1, now + min(FIRST_COOLDOWN << times, MAX_COOLDOWN)

    def opened(self, incarnation: str) -> None:
        """The incarnation opened a segment, so its refusals are forgotten."""
        self._cooldowns.pop(incarnation, None)

    def cooling_down(self, now: Micros) -> set[str]:
        """The incarnations that receive no segment now."""
        return {name for name, (_, until) in self._cooldowns.items() if now < until <= now + MAX_COOLDOWN}
