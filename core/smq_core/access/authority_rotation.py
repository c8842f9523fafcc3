"""When a release changes the authority that signs its certificates.

A new authority first comes into the bundle of roots. It signs when every broker has that bundle, and every client has
had the time to fetch it. The former one leaves the bundle when the last certificate that it signed has ended. So at
each moment everybody trusts whatever certificate it meets.

Times are seconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum

DAY_SECONDS = 24 * 3600
# How long before its end an authority that still signs is a problem; of a short life a sixth. The next one is
# introduced long before that.
LATE_SECONDS = 7 * DAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateLives:
    """For how many seconds certificates count, by what they are for.

    ``margin`` is how much longer a former authority is trusted: clocks differ, and a leader may learn late that it does
    not sign any more.
    """

    # A client that was let in stays in for that long without the leader. It logs in again after 70 % of it.
    client: int = 15 * 60
    # Of brokers and leaders. Longer, so that brokers outlive an outage of the leader.
    server: int = DAY_SECONDS
    authority: int = 365 * DAY_SECONDS
    margin: int = 15 * 60


class AuthorityPhase(Enum):
    """``INTRODUCED``: in the bundle, and signs nothing yet. ``RETIRED``: in the bundle, and signs nothing any more."""

    INTRODUCED = "introduced"
    SIGNING = "signing"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """``id`` is that of its certificate, which counts from ``issued_at`` to ``expires_at``.

    ``since`` is when its phase began.
    """

    id: str
    phase: AuthorityPhase
    since: float
    issued_at: float
    expires_at: float

    def renew_at(self) -> float:
        """When the next one is to be introduced: at two thirds of its life."""
        return self.issued_at + (self.expires_at - self.issued_at) * 2 / 3

    def is_late(self, now: float) -> bool:
        """Whether it ends so soon that somebody has to look why it still signs."""
        return now >= self.expires_at - min(LATE_SECONDS, (self.expires_at - self.issued_at) / 6)


@dataclass(frozen=True, slots=True)
class Rotation:
    """The authorities of a release: one signs, at most one is introduced, and others are retired."""

    authorities: Sequence[Authority]

    @property
    def signing(self) -> Authority:
        return next(it for it in self.authorities if it.phase is AuthorityPhase.SIGNING)

    @property
    def introduced(self) -> Authority | None:
        return next((it for it in self.authorities if it.phase is AuthorityPhase.INTRODUCED), None)

    def is_due(self, now: float) -> bool:
        """Whether the authority that signs is so old that the next one is to be introduced."""
        has_next = self.introduced is not None and now < self.introduced.expires_at
        return not has_next and now >= self.signing.renew_at()

    def introduce(self, new: Authority) -> Rotation:
        """``new`` has the phase INTRODUCED. One that was introduced before has signed nothing, and goes."""
        return Rotation([it for it in self.authorities if it is not self.introduced] + [new])

    def advance(self, now: float, lives: CertificateLives, brokers_behind: Collection[str]) -> Rotation:
        """What changes by now; the same object if nothing does.

        ``brokers_behind`` are those that do not trust all authorities yet.
        """
        found = self
        new = self.introduced
        if new is not None and self.waits_for(now, lives, brokers_behind) == "":
            retired = replace(self.signing, phase=AuthorityPhase.RETIRED, since=now)
            promoted = replace(new, phase=AuthorityPhase.SIGNING, since=now)
            found = Rotation([{self.signing: retired, new: promoted}.get(it, it) for it in self.authorities])
        kept = [it for it in found.authorities if not _has_ended(it, now, lives)]
        return found if len(kept) == len(found.authorities) else Rotation(kept)

    def waits_for(self, now: float, lives: CertificateLives, brokers_behind: Collection[str]) -> str:
        """What has to happen before the introduced authority signs, for people; empty if nothing has to."""
        new = self.introduced
        if new is None or now >= self.signing.expires_at:
            return ""  # nobody trusts what has expired, so there is nothing to wait for
        if brokers_behind:
            return f"brokers that do not trust the new authority yet: {', '.join(sorted(brokers_behind))}"
        left = new.since + lives.client - now
        return f"clients, which fetch the new bundle within {left:.0f} s" if left > 0 else ""


def _has_ended(authority: Authority, now: float, lives: CertificateLives) -> bool:
    """Whether nothing counts any more that this authority signed."""
    longest = max(lives.client, lives.server)
    return authority.phase is AuthorityPhase.RETIRED and now >= authority.since + longest + lives.margin
