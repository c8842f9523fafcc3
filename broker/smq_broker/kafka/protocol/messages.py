"""What a handler of a Kafka API gets, and what it returns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from smq_broker.kafka.protocol.sessions import OPEN_ACCESS, RequestAccess, Session

# Bytes that are sent as they are: ``bytes``, ``bytearray`` or ``memoryview``. They must not change until they are sent.
Part: TypeAlias = bytes | bytearray | memoryview

PRODUCE = 0
FETCH = 1
API_VERSIONS = 18


class ProtocolError(Exception):
    """A client violates the protocol, so that its connection has to end. ``reason`` is a label of metrics."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class FetchWait:
    """Of the last Fetch request of a connection. ``changed`` is set when it is to look again at what there is."""

    __slots__ = ("changed", "is_over")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.is_over = False

    def end(self) -> None:
        self.is_over = True
        self.changed.set()


@dataclass(slots=True)
class ClientConnection:
    """What is known of the client of one connection. All its requests share it."""

    peer: str
    """Its address, ``host:port``."""
    session: Session | None = None
    """Of the client that has logged in. None if nobody has, and in a release without security."""
    mechanism: str = ""
    """The one of SASL that the client has chosen; empty before that."""
    made_at: float = 0.0
    """In seconds of the event loop."""
    record_at: float = 0.0
    """When it is to be recorded again that it has not logged in, in seconds of the event loop."""
    is_finishing: bool = False
    """Whether the connection ends when what was received is answered."""
    software: str = ""
    """Name and version of its library, empty until an ApiVersions request says them."""
    produce_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the Produce request whose batches are being appended, so that those of a connection stay in order."""
    fetch_wait: FetchWait = field(default_factory=FetchWait)

    def begin_fetch(self) -> FetchWait:
        """The Fetch request before waits no longer: its response comes first, and would delay that of this one."""
        self.fetch_wait.end()
        self.fetch_wait = FetchWait()
        return self.fetch_wait


@dataclass(frozen=True, slots=True)
class RequestContext:
    client_id: str | None
    version: int
    connection: ClientConnection
    access: RequestAccess = OPEN_ACCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRequest:
    """``body`` is kio's entity of this version; for Produce :class:`~.produce_request.ProduceRequest`.

    None stands for an ApiVersions request of a version that nobody knows here.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any


class Encodable(Protocol):
    """A response that encodes itself."""

    def encode(self, version: int) -> Sequence[Part]:
        """The body in this version of its API."""
        ...


class EncodedBody(NamedTuple):
    """A body that was encoded before, in the version of its request."""

    parts: Sequence[Part]

    def encode(self, version: int) -> Sequence[Part]:
        return self.parts


# kio's entity in the version of the request, the values from which :func:`~.entities.build` makes it, or an Encodable.
# None: the request gets no response, as a Produce request with acks=0.
ResponseBody: TypeAlias = Any

# It is cancelled when the connection ends. If it raises, the connection ends.
Handler: TypeAlias = Callable[[Any, RequestContext], Awaitable[ResponseBody | None]]


class Api(NamedTuple):
    min_version: int
    max_version: int
    handler: Handler


# By API key.
ApiTable: TypeAlias = Mapping[int, Api]
