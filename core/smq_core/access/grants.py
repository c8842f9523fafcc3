"""Grants: what the leader has allowed an identity to do, for some minutes. Brokers check them without the leader.

The leader signs them, so a broker needs neither the leader nor the API server to verify one. A client presents its
grants to a broker before its first stream there, and again before they expire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from smq_core.access.quotas import NO_QUOTA, Quota, QuotaMeter
from smq_core.access.rights import Right
from smq_core.errors import PermissionDenied

# How long the leader's grants are good for.
GRANT_SECONDS = 300
# How much longer a grant counts while this broker has no leader, which alone could renew it.
LEADERLESS_GRACE_SECONDS = 600
# The most grants that a broker keeps for one identity. More topics than that are read and written by no one process.
MAX_GRANTS_PER_IDENTITY = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """``topic`` is ``namespace/name``, ``uid`` the topic's, so that a grant does not outlive it.

    ``expires_at`` is in seconds since the Unix epoch.
    """

    release: str
    identity: str
    topic: str
    uid: str
    right: Right
    expires_at: float
    quota: Quota = NO_QUOTA


@dataclass(slots=True)
class _Presented:
    expires_at: float
    meter: QuotaMeter


class GrantBook:
    """The grants that were presented to one broker. ``release`` is its own. Times are seconds since the Unix epoch.

    ``count_grace`` is called each time that a grant allows something only because there is no leader.
    """

    def __init__(self, release: str, count_grace: Callable[[], object] = lambda: None) -> None:
        self._release = release
        self._count_grace = count_grace
        self._presented: dict[str, dict[tuple[str, Right], _Presented]] = {}
        """By identity: until when it has a right to the topic with a uid, and what it uses by it."""

    def add(self, identity: str, grant: Grant, now: float) -> None:
        """Takes a grant whose signature was verified. Raises PermissionDenied if it is another's, or has expired."""
        if grant.release != self._release:
            raise PermissionDenied("this grant is one of another release", identity=identity)
        if grant.identity != identity:
            raise PermissionDenied("this grant is one of another identity", identity=identity)
        if grant.expires_at <= now:
            raise PermissionDenied("this grant has expired: fetch a new one from the leader", identity=identity)
        held = self._presented.setdefault(identity, {})
        if len(held) >= MAX_GRANTS_PER_IDENTITY:
            self._drop_expired(identity, now)
            held = self._presented.setdefault(identity, {})
        if len(held) >= MAX_GRANTS_PER_IDENTITY:
            raise PermissionDenied(
                f"a broker keeps {MAX_GRANTS_PER_IDENTITY} grants for one identity: use fewer topics at a time",
                identity=identity,
            )
        key = (grant.uid, grant.right)
        known = held.get(key)
        if known is None:
            meter = QuotaMeter(identity=identity, topic=grant.topic, right=grant.right, quota=grant.quota)
            held[key] = _Presented(grant.expires_at, meter)
        elif grant.expires_at >= known.expires_at:  # an older grant, presented again, brings no former quota back
            known.expires_at = grant.expires_at
            known.meter.quota = grant.quota

    def allows(self, identity: str, uid: str, right: Right, now: float, leader_seen_at: float) -> bool:
        """Whether the identity has the right to the topic with this uid.

        ``leader_seen_at`` is when a leader last answered this broker: without a leader a grant counts for longer.
        """
        held = self._presented.get(identity, {}).get((uid, right))
        if held is None:
            return False
        expires_at = held.expires_at
        if now <= expires_at:
            return True
        if leader_seen_at >= expires_at or now > expires_at + LEADERLESS_GRACE_SECONDS:
            return False
        self._count_grace()
        return True

    def meter(self, identity: str, uid: str, right: Right) -> QuotaMeter:
        """What the identity uses by a right that it has. It stays the same until the grant is forgotten."""
        return self._presented[identity][uid, right].meter

    def drop_expired(self, now: float) -> None:
        """Forgets what can allow nothing any more."""
        for identity in list(self._presented):
            self._drop_expired(identity, now)

    def _drop_expired(self, identity: str, now: float) -> None:
        kept = {
            key: it for key, it in self._presented[identity].items() if now <= it.expires_at + LEADERLESS_GRACE_SECONDS
        }
        if kept:
            self._presented[identity] = kept
        else:
            del self._presented[identity]
