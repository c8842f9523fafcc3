"""What the leader says of the caller itself: who it is, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from smq.admin.wire_times import time_of
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


def caller_info(reply: auth_pb2.WhoAmIReply) -> CallerInfo:
    return CallerInfo(
        identity=reply.identity,
        groups=tuple(reply.groups),
        method=reply.method,
        expires_at=time_of(reply.expires_at),
    )
