"""The first seconds of a leader, in which brokers that an earlier leader used have not all reported yet."""

from __future__ import annotations

from smq_operator.runtime.clock import Clock

WARM_UP_US = 3_000_000
# How long a new leader waits for all desired brokers before it places a topic that is new.
FLEET_START_TIMEOUT_US = 15_000_000


class WarmUp:
    """``restart`` begins it anew, because the store may have delayed the start of the loop."""

    def __init__(self, clock: Clock, duration_us: int = WARM_UP_US) -> None:
        self._now = clock
        self._duration_us = duration_us
        self.restart()

    def restart(self) -> None:
        now = self._now()
        self.ends_at = now + self._duration_us
        self._fleet_start_deadline = now + FLEET_START_TIMEOUT_US

    def compensate_pause(self, microseconds: int) -> None:
        """No broker could report in that time, because this process was paused."""
        self.ends_at += microseconds
        self._fleet_start_deadline += microseconds

    @property
    def over(self) -> bool:
        """Whether every broker that is alive has had time to report."""
        return self._now() >= self.ends_at

    @property
    def fleet_may_be_starting(self) -> bool:
        """Whether desired brokers that are missing are probably still starting."""
        return self._now() < self._fleet_start_deadline
