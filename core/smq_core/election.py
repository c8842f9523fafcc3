"""Who leads: one candidate's view of the Lease, and what it should do now.

No clocks are compared. A candidate notes by its own monotonic clock when it last saw the Lease change; a holder that
was not seen to renew for the Lease's whole duration, though it was looked at, is taken to be gone: while the API server
is away nobody can renew, so that time says nothing against the holder. The Lease saves work and fences nothing: the
layouts' etags do. So a holder that cannot reach the API server leads on: nobody can take the Lease there either, and
when somebody could after all, the one that cannot renew learns it from that one, and ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from smq_core.model import SECOND


@dataclass(frozen=True, slots=True)
class Lease:
    """The Lease as it was read. ``version`` differs at every change; ``duration`` is in microseconds."""

    version: str
    holder: str
    duration: int
    address: str = ""
    """Where the holder is reached."""


class Act(Enum):
    """What a candidate should do with the Lease now."""

    READ = "read"
    TAKE = "take"
    """Write itself in as the holder, unless the Lease has changed since it was read."""
    RENEW = "renew"
    NOTHING = "nothing"


@dataclass(slots=True)
class Candidate:
    """See the module's docstring. Times are microseconds of a clock that never jumps."""

    me: str
    duration: int = 10 * SECOND
    renew_every: int = 2 * SECOND
    read_every: int = SECOND
    lease: Lease | None = None
    """The Lease as last seen; None when there is none."""
    leads: bool = False
    lost: bool = False
    """It led, and saw another in its place; it must end."""
    _silent_since: int = 0
    """Since when the Lease has been looked at without a gap, and has not changed."""
    _read_at: int | None = None
    _renewed_at: int = 0

    def seen(self, lease: Lease | None, now: int) -> None:
        """The Lease was read so."""
        if self._away(now) or lease is None or self.lease is None or lease.version != self.lease.version:
            self._silent_since = now
        self.lease, self._read_at = lease, now
        if self.leads and lease is not None and lease.holder != self.me:
            self.leads, self.lost = False, True

    def written(self, lease: Lease, now: int) -> None:
        """Its own write succeeded: it is the holder since ``now``, the time before the write was sent."""
        self.lease = lease
        self._read_at = self._silent_since = self._renewed_at = now
        self.leads = True

    def refused(self) -> None:
        """A write came too late, somebody was faster: what is known of the Lease is old."""
        self._read_at = None

    def doubted(self, now: int) -> None:
        """The API server answers and does not let it renew, or another says that it leads: so it has lost when its
        time is over.
        """
        if self.overdue(now):
            self.leads, self.lost = False, True

    def act(self, now: int) -> Act:
        """What is to be done now."""
        if self.lost:
            return Act.NOTHING
        if self._read_at is None:
            return Act.READ
        if self.leads:
            if self.lease is None:
                return Act.TAKE  # somebody deleted it
            return Act.RENEW if now - self._renewed_at >= self.renew_every else Act.NOTHING
        if self._free() and not self._away(now):
            return Act.TAKE
        return Act.READ if now - self._read_at >= self.read_every else Act.NOTHING

    def overdue(self, now: int) -> bool:
        """It leads, but by the Lease others may think that it is gone."""
        return self.leads and now - self._renewed_at > self.duration

    def _away(self, now: int) -> bool:
        """The Lease was not looked at for so long that its holder may have been as unable to renew it."""
        return self._read_at is None or now - self._read_at >= self.duration // 2

    def _free(self) -> bool:
        lease = self.lease
        if lease is None or not lease.holder or lease.holder == self.me or self._read_at is None:
            return True
        return self._read_at - self._silent_since > max(lease.duration, SECOND)
