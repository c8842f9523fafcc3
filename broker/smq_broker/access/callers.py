"""Who makes a call or opens a stream, and what it may do. ``OPEN_CALLER`` may do everything: nobody is known.

Actions and streams make the same checks with and without security, so that none of them can forget one.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from smq_core.access.producer_ids import ANYBODY, Claimant
from smq_proto.v1 import data_pb2 as pb


class StreamQuota(Protocol):
    """How fast a stream may go on. One thread uses it; others may read ``left_seconds``."""

    left_seconds: float
    """The last ``pause_seconds``."""

    @property
    def is_limited(self) -> bool:
        """Whether ``use`` is needed at present."""
        ...

    def use(self, nbytes: int, messages: int) -> None:
        """The stream has taken or sent that much."""
        ...

    def pause_seconds(self) -> float:
        """For how long the stream takes or sends nothing. It has to ask again, because the quota may change."""
        ...

    def close(self) -> None:
        """The stream has ended."""
        ...


class Caller(Protocol):
    """One call or stream. All checks raise what says why this caller may not go on.

    A stream compares ``check_at``, in monotonic seconds, with the time at each frame or heartbeat, and calls
    ``recheck`` when it has come.
    """

    check_at: float

    def admit(self, call: str) -> None:
        """Whether the caller's role may make this call (``broker_calls``). Raises PermissionDenied."""
        ...

    def require(self, uid: str, topic: str = "") -> None:
        """Whether the caller has a right to the topic with this uid, as this call needs it. Raises GrantMissing."""
        ...

    def open_stream(self, uid: str) -> StreamQuota:
        """Counts a stream by the right that was required on this topic, until it is closed. Raises QuotaExceeded."""
        ...

    def require_producer(self, uid: str, producer_id: str) -> None:
        """Whether the caller may write to the topic as this producer. Raises PermissionDenied."""
        ...

    def require_incarnation(self, incarnation: str) -> None:
        """Whether the caller is this incarnation of a broker. Raises PermissionDenied."""
        ...

    def claimant(self, uid: str, topic: str = "") -> Claimant:
        """Who claims an id of the topic with this uid."""
        ...

    def recorded(self) -> AbstractContextManager[None]:
        """Within it a PermissionDenied that is raised is one of this caller, for the log and the metrics."""
        ...

    def recheck(self) -> None:
        """Repeats what was required. Raises Unauthenticated when the certificate has expired, and GrantMissing."""
        ...

    def visible(self, status: pb.BrokerStatus) -> pb.BrokerStatus:
        """What the caller may know of this broker."""
        ...

    def present(self, request: pb.PresentGrants) -> None:
        """Takes grants of this caller. Raises PermissionDenied if one of them is not good."""
        ...


class Access(Protocol):
    """Recognises callers."""

    def caller(self, context: Any) -> Caller:
        """Who is at the other end of a Flight call. Raises Unauthenticated."""
        ...


class UnlimitedStream:
    """A stream without a quota: of a leader, or without security."""

    left_seconds = 0.0
    is_limited = False

    def use(self, nbytes: int, messages: int) -> None: ...

    def pause_seconds(self) -> float:
        return 0.0

    def close(self) -> None: ...


UNLIMITED_STREAM = UnlimitedStream()


class OpenCaller:
    """Without security everybody may do everything."""

    check_at = math.inf

    def admit(self, call: str) -> None: ...

    def require(self, uid: str, topic: str = "") -> None: ...

    def open_stream(self, uid: str) -> StreamQuota:
        return UNLIMITED_STREAM

    def require_producer(self, uid: str, producer_id: str) -> None: ...

    def require_incarnation(self, incarnation: str) -> None: ...

    def claimant(self, uid: str, topic: str = "") -> Claimant:
        return ANYBODY

    def recorded(self) -> AbstractContextManager[None]:
        return nullcontext()

    def recheck(self) -> None: ...

    def visible(self, status: pb.BrokerStatus) -> pb.BrokerStatus:
        return status

    def present(self, request: pb.PresentGrants) -> None: ...


OPEN_CALLER = OpenCaller()


class OpenAccess:
    """Knows nobody."""

    def caller(self, context: Any) -> Caller:
        return OPEN_CALLER
