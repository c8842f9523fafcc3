"""One connection of a Kafka client.

Requests are handled at once, up to a limit, and answered in their order: each gets its place among the responses before
its handler starts. The connection does not read on while enough is handled or unsent, or while memory is short.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import structlog

from smq_broker.kafka.protocol.codec import api_key_of, decode_request, encode_response
from smq_broker.kafka.protocol.messages import (
    ApiTable,
    ClientConnection,
    KafkaRequest,
    Part,
    ProtocolError,
    RequestContext,
)
from smq_broker.kafka.protocol.sessions import ConnectionAccess
from smq_broker.kafka.transport.frames import FrameReader
from smq_broker.kafka.transport.limits import KafkaLimits
from smq_broker.kafka.transport.metrics import KafkaMetrics
from smq_broker.kafka.transport.request_memory import SMALL_BYTES, RequestMemory
from smq_broker.kafka.transport.tls import share_buffer
from smq_broker.runtime.log_limiter import LogLimiter
from smq_core.model.addresses import join_address

# Parts of a response are joined up to this size, and larger ones are split: asyncio copies what it cannot send at once.
WRITE_BYTES = 256 * 1024
# How long a large request may take to arrive while others wait for its memory.
MAX_RECEIVE_SECONDS = 30.0

log = structlog.get_logger(__name__)


class ConnectionHost(Protocol):
    """What all connections of a listener share."""

    apis: ApiTable
    limits: KafkaLimits
    memory: RequestMemory
    metrics: KafkaMetrics
    log_limiter: LogLimiter

    def admit(self, connection: Connection, host: str) -> bool:
        """Whether one more connection from this host is accepted."""
        ...

    def discard(self, connection: Connection, host: str) -> None:
        """An admitted connection has ended."""
        ...


class _Place:
    """Of one request among the responses. ``parts`` is None until it is answered, and empty if it gets no response."""

    __slots__ = ("parts", "reserved_bytes", "size_bytes", "task")

    def __init__(self, size_bytes: int, reserved_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.reserved_bytes = reserved_bytes
        self.parts: Sequence[Part] | None = None
        self.task: asyncio.Task[None] | None = None


class Connection(asyncio.Protocol):
    """All methods are called in the thread of the event loop. ``access`` says which requests it may make."""

    def __init__(self, host: ConnectionHost, access: ConnectionAccess) -> None:
        self._host = host
        self._access = access
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader(host.limits)
        self._places: deque[_Place] = deque()
        self._outbox: deque[Part] = deque()
        self._handled = 0
        self._handled_bytes = 0
        self._reserved_bytes = 0
        """For the frame that comes next."""
        self._waits_for_memory = False
        self._reading = True
        self._writable = True
        self._finishing = False
        self._ended = False
        self._admitted = False
        self._active_at = self._frame_began_at = self._loop.time()
        self._transport: asyncio.Transport
        self._peer_host = ""
        self._client: ClientConnection

    # ---- events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        share_buffer(transport)
        transport.set_write_buffer_limits(high=WRITE_BYTES)
        # None if the client has gone already
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        self._peer_host = peer[0]
        self._client = ClientConnection(join_address(*peer[:2]), made_at=self._loop.time())
        self._admitted = self._host.admit(self, self._peer_host)
        if not self._admitted:
            self._end("limit", "too many connections are open")

    def data_received(self, data: bytes) -> None:
        self._active_at = self._loop.time()
        if not self._frames.has_begun:
            self._frame_began_at = self._active_at
        self._frames.feed(data)
        self._read()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._active_at = self._loop.time()
        self._write()
        self._read()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        memory = self._host.memory
        memory.cancel(self)
        for place in self._places:
            if place.task is not None:
                place.task.cancel()
        memory.release(self._reserved_bytes + sum(place.reserved_bytes for place in self._places))
        self._places.clear()
        self._outbox.clear()
        self._access.left(self._client)
        if self._admitted:
            self._host.discard(self, self._peer_host)

    # ---- calls of the listener

    def finish(self) -> None:
        """Closes the connection when all requests that were received are answered."""
        self._finishing = True
        self._read()

    def abort(self) -> None:
        self._ended = True
        self._transport.abort()

    def check_idle(self, now: float) -> None:
        """Closes a connection on which nothing happens, whose session has ended, or whose unfinished request takes
        memory that others need.
        """
        if reason := self._access.end_reason(self._client, now):
            self._end("session", reason)
        elif now - self._active_at > self._host.limits.idle_seconds:
            self._end("idle", "nothing was received or sent for too long")
        elif (
            self._host.memory.is_short
            and self._reserved_bytes
            and self._reading
            and now - self._frame_began_at > MAX_RECEIVE_SECONDS
        ):
            self._end("slow", "a large request arrives too slowly while others wait for its memory")

    # ---- requests

    def _read(self) -> None:
        """Starts the requests that are received, until enough are handled."""
        try:
            while self._may_start() and (frame := self._next_frame()) is not None:
                self._start(frame)
        except ProtocolError as error:
            self._end(error.reason, error.message)
        except Exception as error:
            self._end("failed_request", "a request could not be started", error=error)
        if self._ended:
            return
        if self._finishing and not self._places and not self._outbox:
            self._transport.close()
            self._ended = True
            return
        reading = self._may_start() and not self._waits_for_memory
        if reading is not self._reading:
            self._reading = reading
            if reading:
                self._frame_began_at = self._loop.time()
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _may_start(self) -> bool:
        limits = self._host.limits
        return not (
            self._ended
            or self._finishing
            or self._outbox
            or not self._writable
            or self._handled >= limits.max_handled
            or self._handled_bytes >= limits.max_handled_bytes
        )

    def _next_frame(self) -> memoryview | None:
        """None if it is not whole yet, or if its memory is not reserved yet."""
        size = self._frames.next_size(self._access.max_frame_bytes(self._client))
        if size is None:
            return None
        if size > SMALL_BYTES and not self._reserved_bytes:
            if self._waits_for_memory:
                return None
            needed = self._frames.memory_of_next(size)
            if not self._host.memory.reserve(self, needed, lambda: self._on_reserved(needed)):
                self._waits_for_memory = True
                return None
            self._reserved_bytes = needed
        return self._frames.take(size)

    def _on_reserved(self, nbytes: int) -> None:
        self._waits_for_memory = False
        self._reserved_bytes = nbytes
        self._frame_began_at = self._loop.time()
        self._loop.call_soon(self._read)

    def _start(self, frame: memoryview) -> None:
        self._frame_began_at = self._active_at
        access = self._access.admit(self._client, api_key_of(frame))
        request = decode_request(frame, self._host.apis)
        self._host.metrics.count_request(request.api_key)
        place = _Place(len(frame), self._reserved_bytes)
        self._reserved_bytes = 0
        self._places.append(place)
        self._handled += 1
        self._handled_bytes += place.size_bytes
        context = RequestContext(request.client_id, request.version, self._client, access)
        place.task = self._loop.create_task(self._handle(place, request, context))

    async def _handle(self, place: _Place, request: KafkaRequest, context: RequestContext) -> None:
        api = self._host.apis[request.api_key]
        try:
            body = await api.handler(request.body, context)
            place.parts = () if body is None else encode_response(request, body)
        except ProtocolError as error:
            self._end(error.reason, error.message)
            return
        except BaseException as error:
            # A handler that was cancelled by somebody else gives no answer either.
            self._end("failed_request", f"a request of API {request.api_key} failed", error=error)
            if not isinstance(error, Exception):
                raise
            return
        if not self._ended:
            self._answered(place)

    def _answered(self, place: _Place) -> None:
        place.task = None
        self._handled -= 1
        self._handled_bytes -= place.size_bytes
        self._host.memory.release(place.reserved_bytes)
        place.reserved_bytes = 0
        while self._places and (parts := self._places[0].parts) is not None:
            self._places.popleft()
            self._outbox.extend(packed(parts))
        self._finishing = self._finishing or self._client.is_finishing
        self._write()
        self._read()

    def _write(self) -> None:
        while self._outbox and self._writable and not self._ended:
            self._transport.write(self._outbox.popleft())

    def _end(self, reason: str, message: str, *, error: BaseException | None = None) -> None:
        """Closes the connection at once. Its requests get no response any more."""
        if self._ended:
            return
        self._host.metrics.closed.labels(reason).inc()
        left_out = self._host.log_limiter.admit(reason)
        if left_out is not None:
            write = log.info if error is None else log.error
            write(
                "kafka.connection_closed",
                reason=reason,
                error=message,
                peer=self._client.peer,
                software=self._client.software,
                left_out=left_out,
                exc_info=error,
            )
        self.abort()


def packed(parts: Sequence[Part]) -> list[Part]:
    """The same bytes in parts of about ``WRITE_BYTES``: small ones are joined, large ones are split into views."""
    done: list[Part] = []
    small = bytearray()
    for part in parts:
        if len(small) + len(part) <= WRITE_BYTES:
            small += part
            continue
        if small:
            done.append(small)
            small = bytearray()
        view = memoryview(part)
        done += [view[start : start + WRITE_BYTES] for start in range(0, len(view), WRITE_BYTES)]
    return [*done, small] if small else done
