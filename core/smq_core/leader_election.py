"""Leader election: one candidate's view of the Lease, and its next action.

No clocks are compared. A candidate records by its own monotonic clock when it last saw the Lease change. It considers
the holder gone if the Lease did not change for its whole duration while the candidate kept reading it. A time without
reads does not count, because the API server may have been unreachable for the holder, too.

The Lease only saves work; the layouts' etags fence former leaders. So a holder that cannot reach the API server
continues to lead: usually no other candidate can take the Lease then. If one did take it after all, the former holder
learns that from the new leader, and ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from smq_core.model.entities import SECOND, Micros


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The Lease as it was read. ``version`` differs after every change."""

    version: str
    holder: str
    duration: Micros
    address: str = ""
    """The holder's address."""


class LeaseAction(Enum):
    """What a candidate should do with the Lease now."""

    READ = "read"
    TAKE = "take"
    """Become the holder by a write that fails if the Lease has changed since it was read."""
    RENEW = "renew"
    NOTHING = "nothing"


@dataclass(slots=True)
class LeaseCandidate:
    """See the module's docstring. Times are those of a monotonic clock."""

    identity: str
    duration: Micros = 10 * SECOND
    renew_every: Micros = 2 * SECOND
    read_every: Micros = SECOND
    lease: LeaseRecord | None = None
    """The Lease as last seen; None when there is none."""
    leads: bool = False
    lost: bool = False
    """It led and saw another holder, so its process must end."""
    _unchanged_since: Micros = 0
    """Since when the Lease was read without a gap and did not change."""
    _read_at: Micros | None = None
    _renewed_at: Micros = 0

    def observed(self, lease: LeaseRecord | None, now: Micros) -> None:
        """Takes a read of the Lease."""
        if self._has_observation_gap(now) or lease is None or self.lease is None or lease.version != self.lease.version:
            self._unchanged_since = now
        self.lease, self._read_at = lease, now
        if self.leads and lease is not None and lease.holder != self.identity:
            self.leads, self.lost = False, True

    def written(self, lease: LeaseRecord, now: Micros) -> None:
        """Its own write succeeded, so it is the holder since ``now``, the time before the write was sent."""
        self.lease = lease
        self._read_at = self._unchanged_since = self._renewed_at = now
        self.leads = True

    def refused(self) -> None:
        """Its write failed because the Lease had changed, so the Lease has to be read again."""
        self._read_at = None

    def renewal_rejected(self, now: Micros) -> None:
        """The API server rejected a renewal, or another process reports that it leads. Once the Lease has expired,
        the leadership is lost.
        """
        if self.lease_expired(now):
            self.leads, self.lost = False, True

    def next_action(self, now: Micros) -> LeaseAction:
        """The next action."""
        if self.lost:
            return LeaseAction.NOTHING
        if self._read_at is None:
            return LeaseAction.READ
        if self.leads:
            if self.lease is None:
                return LeaseAction.TAKE  # the Lease was deleted
            return LeaseAction.RENEW if now - self._renewed_at >= self.renew_every else LeaseAction.NOTHING
        if self._is_available() and not self._has_observation_gap(now):
            return LeaseAction.TAKE
        return LeaseAction.READ if now - self._read_at >= self.read_every else LeaseAction.NOTHING

    def lease_expired(self, now: Micros) -> bool:
        """True if it leads, but other candidates may take the Lease."""
        return self.leads and now - self._renewed_at > self.duration

    def _has_observation_gap(self, now: Micros) -> bool:
        """True if the Lease was not read for so long that its holder may have been unable to renew it, too."""
        return self._read_at is None or now - self._read_at >= self.duration // 2

    def _is_available(self) -> bool:
        lease = self.lease
        if lease is None or not lease.holder or lease.holder == self.identity or self._read_at is None:
            return True
        return self._read_at - self._unchanged_since > max(lease.duration, SECOND)
