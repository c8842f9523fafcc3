"""Which role may call what at a broker, and which right a client needs for it.

Calls are the actions of ``data.proto`` by their names, and three kinds of streams. What is not in the table is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from smq_core.access.peers import Peer, Role
from smq_core.access.rights import Right, topic_right
from smq_core.errors import GrantMissing, PermissionDenied, Unauthenticated

# Streams: the lanes of producers, the lanes of a primary's broker to its followers, and the tails of readers.
PRODUCERS, REPLICA, TAIL = "producers", "replica", "tail"
GRANTS = "grants"

_LEADER = frozenset({Role.LEADER})
_CLIENTS = frozenset({Role.CLIENT, Role.LEADER})


@dataclass(frozen=True, slots=True)
class CallRule:
    """``rights``: a client needs one of them on the topic of the call. Of a leader or a broker the role is enough."""

    roles: frozenset[Role]
    rights: tuple[Right, ...] = ()


NOBODY = CallRule(frozenset())

BROKER_CALLS: Mapping[str, CallRule] = MappingProxyType(
    {
        "open": CallRule(_LEADER),
        "seal": CallRule(_LEADER),
        "segments": CallRule(_LEADER),
        "outcome": CallRule(_CLIENTS, (Right.PRODUCE,)),
        "claim": CallRule(_CLIENTS, (Right.PRODUCE,)),
        "locate": CallRule(_CLIENTS, (Right.PRODUCE, Right.CONSUME)),
        # A client gets the segments of those topics on which it has a right.
        "status": CallRule(frozenset(Role), tuple(Right)),
        GRANTS: CallRule(_CLIENTS),
        PRODUCERS: CallRule(_CLIENTS, (Right.PRODUCE,)),
        REPLICA: CallRule(frozenset({Role.BROKER})),
        TAIL: CallRule(_CLIENTS, (Right.CONSUME,)),
    }
)


def rule_of(call: str) -> CallRule:
    """What is not in the table is allowed to nobody."""
    return BROKER_CALLS.get(call, NOBODY)


def identity_denial(peer: Peer, release: str, now: float) -> Unauthenticated | None:
    """Why a broker of this release serves this peer nothing, if so. ``now`` is in seconds since the Unix epoch."""
    if peer.release != release:
        return Unauthenticated(f"the certificate of {peer} is that of another release: log in with a token of this one")
    if peer.has_expired(now):
        return Unauthenticated(f"the certificate of {peer} has expired: connect again with a new one")
    return None


def role_denial(peer: Peer, call: str) -> PermissionDenied | None:
    """Why this peer may not make this call, if it may not."""
    roles = rule_of(call).roles
    if peer.role in roles:
        return None
    allowed = " or ".join(sorted(role.value for role in roles)) or "nobody"
    return PermissionDenied(
        f"{peer} may not call {call} at a broker: its certificate would have to be that of a {allowed}",
        identity=peer.name,
        access=call,
    )


def grant_missing(peer: Peer, call: str, topic: str) -> GrantMissing:
    """``topic`` is ``namespace/name``; empty if this broker does not know its name."""
    rights = rule_of(call).rights
    access = " or ".join(str(topic_right(right, topic)) for right in rights)
    return GrantMissing(
        f"{peer} has presented no grant to {access}: fetch one from the leader, and present it to this broker",
        identity=peer.name,
        access=access,
        topic=topic,
        right=rights[0].value,
    )
