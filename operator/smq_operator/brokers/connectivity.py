"""Finds pairs of brokers that cannot reach each other although both reach the leader."""

from __future__ import annotations

from collections.abc import Callable

UNREACHABLE_AFTER_US = 3_000_000
# A report that a peer is unreachable expires if it is not repeated for this long.
UNREACHABLE_REPORT_TTL_US = 1_500_000
MOVE_COOLDOWN_US = 30_000_000


class BrokerConnectivity:
    """Gets the unresponsive followers of every report. ``separate(primary, follower)`` moves their common segments."""

    def __init__(self, separate: Callable[[str, str], None]) -> None:
        self._separate = separate
        self._unreachable_since: dict[tuple[str, str], tuple[int, int]] = {}
        self._moved_at: dict[tuple[str, str], int] = {}

    def handle_report(self, primary: str, unresponsive: list[str], now: int) -> None:
        """``primary`` got no answer from these incarnations."""
        for pair in [p for p in self._unreachable_since if p[0] == primary and p[1] not in unresponsive]:
            del self._unreachable_since[pair]
        for follower in unresponsive:
            pair = (primary, follower)
            first, last = self._unreachable_since.get(pair, (now, now))
            first = first if now - last <= UNREACHABLE_REPORT_TTL_US else now
            self._unreachable_since[pair] = (first, now)
            if (
                now - first >= UNREACHABLE_AFTER_US
                and now - self._moved_at.get(pair, -MOVE_COOLDOWN_US) >= MOVE_COOLDOWN_US
            ):
                self._moved_at[pair] = now
                self._separate(primary, follower)
