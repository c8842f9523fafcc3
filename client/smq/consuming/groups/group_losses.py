"""What a member of a group has to learn of lost messages before it goes on, and what it has to confirm."""

from __future__ import annotations

from collections.abc import Mapping

from smq_core.errors import DataLost

LOSSES_TIMEOUT_SECONDS = 5.0


class GroupLosses:
    """Not safe from threads."""

    def __init__(self) -> None:
        self.received = False
        """Whether the leader has said what the group has lost."""
        self._awaited_since: float | None = None
        self._to_confirm: dict[str, int] = {}

    def delay_messages(self, now: float) -> bool:
        """Whether messages that are there wait, because losses come first. ``now``: monotonic seconds.

        A leader that does not answer delays them for LOSSES_TIMEOUT_SECONDS only.
        """
        if self.received:
            return False
        if self._awaited_since is None:
            self._awaited_since = now
        return now - self._awaited_since < LOSSES_TIMEOUT_SECONDS

    def reported(self, loss: DataLost) -> None:
        """It was reported to the program, so the group's next commit confirms that."""
        known = self._to_confirm.get(loss.segment, 0)
        self._to_confirm[loss.segment] = max(known, loss.stop)

    @property
    def to_confirm(self) -> dict[str, int]:
        """The ends of what was reported, by segment. A copy."""
        return dict(self._to_confirm)

    def confirmed(self, ends: Mapping[str, int]) -> None:
        """A commit has confirmed these; what was reported meanwhile is left."""
        for segment, upto in ends.items():
            if self._to_confirm.get(segment) == upto:
                del self._to_confirm[segment]
