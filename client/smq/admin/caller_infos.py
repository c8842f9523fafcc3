"""What the leader says of the caller itself: who it is, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from smq.admin.wire_times import instant_of, time_of
from smq_proto.v1 import auth_pb2

# The method of a release without security.
OPEN = "Open"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerInfo:
    """Who the leader takes this client for. ``identity`` is empty in an open release, which knows nobody.

    ``method`` says how the caller was recognised: ``ServiceAccount``, ``OIDC``, ``StaticToken``; ``Open`` without
    security. ``expires_at`` is when the token ends; None if it does not.
    """

    identity: str
    groups: tuple[str, ...]
    method: str
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCheck:
    """Whether the caller may do something. If not, ``reason`` says why, and what would allow it."""

    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityInfo:
    """An authority of a secure release, which signs the certificates of leader, brokers and clients.

    ``phase``: ``introduced`` (trusted, and signs later), ``signing``, ``retired`` (trusted until what it signed ends).
    ``since`` is when the phase began.
    """

    id: str
    phase: str
    since: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityRotation:
    """``waits_for`` is what has to happen before the introduced authority signs; empty if none is introduced."""

    authorities: tuple[AuthorityInfo, ...]
    waits_for: str


def authority_rotation(reply: auth_pb2.AuthorityList) -> AuthorityRotation:
    return AuthorityRotation(
        authorities=tuple(
            AuthorityInfo(id=it.id, phase=it.phase, since=instant_of(it.since), expires_at=instant_of(it.expires_at))
            for it in reply.authorities
        ),
        waits_for=reply.waits_for,
    )


def caller_info(reply: auth_pb2.WhoAmIReply) -> CallerInfo:
    return CallerInfo(
        identity=reply.identity,
        groups=tuple(reply.groups),
        method=reply.method,
        expires_at=time_of(reply.expires_at),
    )
