"""Who is at the other end of a connection, and what its requests may do.

Handlers make the same checks with and without security, so that none of them can forget one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kio.schema.errors import ErrorCode

from smq_broker.access.callers import UNLIMITED_STREAM, StreamQuota

if TYPE_CHECKING:
    from smq_broker.kafka.protocol.messages import ClientConnection


@dataclass(slots=True)
class Session:
    """A client that has logged in. ``ends_at`` is in seconds of the event loop.

    ``streams`` are the quotas that its connection uses, by the topic's uid and the right.
    """

    identity: str
    token: str = field(repr=False)
    mechanism: str
    ends_at: float = math.inf
    ended_because: str = ""
    """Why it may do nothing any more; empty while it may."""
    streams: dict[tuple[str, str], StreamQuota] = field(default_factory=dict)


class RequestAccess(Protocol):
    """What one request may do, by the rights that its API needs (``kafka_calls``). Each refusal is recorded."""

    async def topic(self, name: str) -> ErrorCode:
        """``none`` if the client has the right to the topic that it names so, otherwise the error of that topic."""
        ...

    async def visible(self, topics: Iterable[str]) -> Collection[str]:
        """Those of these topics (``namespace/name``) which the client may see."""
        ...

    async def group(
        self, group: str, topics: Iterable[str], named: Iterable[str] = (), *, listed: bool = False
    ) -> ErrorCode:
        """Whether the client may use this group, which reads these topics (``namespace/name``), and those that clients
        name as ``named`` has them.

        A refusal is not recorded if the group is one of a list, which the client did not name.
        """
        ...

    def stream(self, name: str) -> StreamQuota:
        """The quota of what this connection writes to the topic, or reads, once ``topic`` has allowed it.

        Raises QuotaExceeded.
        """
        ...


class OpenRequestAccess:
    """Everybody may do everything."""

    async def topic(self, name: str) -> ErrorCode:
        return ErrorCode.none

    async def visible(self, topics: Iterable[str]) -> Collection[str]:
        return set(topics)

    async def group(
        self, group: str, topics: Iterable[str], named: Iterable[str] = (), *, listed: bool = False
    ) -> ErrorCode:
        return ErrorCode.none

    def stream(self, name: str) -> StreamQuota:
        return UNLIMITED_STREAM


OPEN_ACCESS = OpenRequestAccess()


class ConnectionAccess(Protocol):
    """Looks at each request of a connection before its handler. Runs in the event loop."""

    def admit(self, connection: ClientConnection, api_key: int) -> RequestAccess:
        """Raises ProtocolError if the connection may not make this request."""
        ...

    def end_reason(self, connection: ClientConnection, now: float) -> str | None:
        """Why the connection has to end, if it has. ``now`` is in seconds of the event loop."""
        ...

    def max_frame_bytes(self, connection: ClientConnection) -> int | None:
        """The longest request that the client may send now; None if there are only the usual limits."""
        ...

    def left(self, connection: ClientConnection) -> None:
        """The connection has ended."""
        ...


class OpenAccess:
    """Nobody is known."""

    def admit(self, connection: ClientConnection, api_key: int) -> RequestAccess:
        return OPEN_ACCESS

    def end_reason(self, connection: ClientConnection, now: float) -> str | None:
        return None

    def max_frame_bytes(self, connection: ClientConnection) -> int | None:
        return None

    def left(self, connection: ClientConnection) -> None: ...
