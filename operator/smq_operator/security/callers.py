"""Who calls, and what it may do: the ports to whatever knows that."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from smq_core.access.rights import Access
from smq_core.model.incarnation_ids import parse_incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """``method`` is how the caller was recognised, such as ``StaticToken``.

    ``incarnation`` is that of a broker, or ``pod`` the uid of its Pod; both are empty for everybody else.
    ``expires_at`` is when its token expires, in seconds since the Unix epoch; 0 if it does not.
    """

    identity: str
    groups: tuple[str, ...] = ()
    method: str
    incarnation: str = ""
    pod: str = ""
    expires_at: float = 0.0

    @property
    def is_broker(self) -> bool:
        return bool(self.incarnation or self.pod)

    def proves(self, incarnation: str) -> bool:
        """Whether the token is one of the broker with this incarnation."""
        if self.pod:
            parsed = parse_incarnation(incarnation)
            return parsed is not None and parsed.pod == self.pod
        return bool(incarnation) and self.incarnation == incarnation


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """``reason`` says why not, and what would allow it; empty if it is allowed. ``age_seconds`` is the answer's."""

    allowed: bool
    reason: str = ""
    age_seconds: float = 0.0


class TokenVerifier(Protocol):
    """Recognises callers by their tokens."""

    async def verify(self, token: str) -> Caller:
        """Raises Unauthenticated, and Unavailable if that cannot be found out now."""
        ...


class Authorizer(Protocol):
    """Knows what callers may do."""

    async def allows(self, caller: Caller, access: Access) -> AccessDecision:
        """Raises Unavailable if that cannot be found out now."""
        ...


_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)
_peer: ContextVar[str] = ContextVar("peer", default="")


def current_caller() -> Caller | None:
    """Who makes the call that is handled now; None in a release without security."""
    return _caller.get()


def current_peer() -> str:
    """Where the call that is handled now comes from, for the log."""
    return _peer.get()


def set_current_call(caller: Caller | None, peer: str) -> None:
    """For the rest of this call, which is a separate task."""
    _caller.set(caller)
    _peer.set(peer)
