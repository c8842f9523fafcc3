"""A connection to a broker, on behalf of one client. The broker answers its requests in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from smq_broker.kafka.protocol.cursor import INT32
from smq_broker.kafka.protocol.messages import Part, ProtocolError
from smq_broker.kafka.protocol.upstream_codec import encode_request, response_body

# No broker sends more.
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
MAX_CORRELATION_ID = 2**31 - 1


class UpstreamLost(Exception):
    """A broker gives no answer. ``was_sent``: it may have done what was requested."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.message = message
        self.was_sent = was_sent


class _Awaited:
    """``answer`` gets the body of the response."""

    __slots__ = ("answer", "api_key", "correlation_id", "version")

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        # Whoever sent the request may be gone.
        self.answer.add_done_callback(lambda done: done.cancelled() or done.exception())


class Upstream(asyncio.Protocol):
    """``token`` is the one with which it has logged in; empty without security. ``count`` counts open connections."""

    def __init__(self, count: Callable[[int], None]) -> None:
        self.token = ""
        self._count = count
        self._buffer = bytearray()
        self._awaited: deque[_Awaited] = deque()
        self._last_id = 0
        self._transport: asyncio.Transport
        self._ended_because = ""
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def is_open(self) -> bool:
        return not self._ended_because

    def request(
        self, api_key: int, version: int, client_id: str | None, body: Sequence[Part]
    ) -> asyncio.Future[memoryview]:
        """Sends it at once. The answer is the body of the response, or raises UpstreamLost."""
        self._last_id = self._last_id + 1 if self._last_id < MAX_CORRELATION_ID else 1
        awaited = _Awaited(api_key, version, self._last_id)
        if self._ended_because:
            awaited.answer.set_exception(UpstreamLost(self._ended_because, was_sent=False))
            return awaited.answer
        self._awaited.append(awaited)
        self._transport.writelines(encode_request(api_key, version, self._last_id, client_id, body))
        return awaited.answer

    def send(self, api_key: int, version: int, client_id: str | None, body: Sequence[Part]) -> None:
        """Sends a request that gets no response."""
        if not self._ended_because:
            self._transport.writelines(encode_request(api_key, version, 0, client_id, body))

    async def drained(self) -> None:
        """Returns when the broker has taken most of what was sent. One that hangs would fill the memory otherwise."""
        await self._writable.wait()

    def end(self, reason: str) -> None:
        """Closes the connection at once."""
        if self._ended_because:
            return
        self._ended_because = reason
        self._writable.set()
        self._transport.abort()
        self._buffer.clear()
        while self._awaited:
            answer = self._awaited.popleft().answer
            if not answer.done():
                answer.set_exception(UpstreamLost(reason, was_sent=True))

    # ---- events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._count(1)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            while (frame := self._take_frame()) is not None:
                self._answered(frame)
        except ProtocolError as error:
            self.end(f"a broker answers with what is no answer: {error.message}")

    def connection_lost(self, error: Exception | None) -> None:
        self.end(f"a broker has ended its connection: {error}" if error is not None else "a broker has ended it")
        self._count(-1)

    def _take_frame(self) -> memoryview | None:
        buffer = self._buffer
        if len(buffer) < INT32.size:
            return None
        (size,) = INT32.unpack_from(buffer)
        if not INT32.size <= size <= MAX_RESPONSE_BYTES:
            raise ProtocolError("frame_size", f"a response of {size} bytes")
        end = INT32.size + size
        if len(buffer) < end:
            return None
        if len(buffer) == end:  # a large response that comes alone is not copied
            self._buffer = bytearray()
            return memoryview(buffer)[INT32.size :]
        frame = buffer[INT32.size : end]
        del buffer[:end]
        return memoryview(frame)

    def _answered(self, frame: memoryview) -> None:
        (correlation_id,) = INT32.unpack_from(frame)
        if not self._awaited or self._awaited[0].correlation_id != correlation_id:
            raise ProtocolError("order", f"a response to request {correlation_id}, which is not the oldest one")
        awaited = self._awaited.popleft()
        if not awaited.answer.done():
            awaited.answer.set_result(response_body(frame, awaited.api_key, awaited.version))
