"""The relay for clients outside the cluster: a tunnel through any broker to the leader, another broker or the filer.

It serves HTTP CONNECT (RFC 9110, section 9.3.6), which gRPC and therefore Arrow Flight support; for an ``http://``
filer also requests in absolute form (RFC 9112, section 3.2.2). It does not inspect the relayed bytes. It connects only
to the leader, to brokers that the leader lists, and to the filer. Whoever can connect to the leader can report a
broker with any address: who reaches the leader and the relay must be restricted by the network.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from smq_broker.runtime.log_limiter import LogLimiter
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.streams.relay_targets import RelayTargets
from smq_core.errors import InvalidRequest, SmqError, Unavailable
from smq_core.model.addresses import join_address, split_address
from smq_storage.process.listeners import create_listener

REQUEST_TIMEOUT_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 2.0
READ_BYTES = 1 << 20
# Of a request up to its empty line.
MAX_HEAD_BYTES = 16 * 1024
# Connections whose requests have not come yet. One more ends the oldest one: whoever reaches the port can open them.
MAX_UNKNOWN = 256
# Tunnels at once. Each has two sockets, and buffers of a few MiB while it is busy.
MAX_TUNNELS = 2000

log = structlog.get_logger(__name__)


class Relay:
    """Serves in its own thread. ``address`` is where it listens. Raises OSError if the port cannot be bound."""

    def __init__(
        self, listen: str, targets: RelayTargets, registry: CollectorRegistry, threads: ThreadSupervisor
    ) -> None:
        host, port = split_address(listen)
        self._socket = create_listener(host, port)
        self._targets = targets
        self._threads = threads
        self._open_connections = Gauge("smq_relay_connections", "Connections that are relayed now.", registry=registry)
        self._relayed_bytes = Counter("smq_relay_bytes", "Bytes that were relayed, both ways.", registry=registry)
        self._unknown: dict[asyncio.StreamWriter, None] = {}
        """Those whose requests have not come yet, in the order of their connections."""
        self._tunnels = 0
        self._log_limiter = LogLimiter()
        self.address = join_address(host, self._socket.getsockname()[1])

    def start(self) -> None:
        """Raises Unavailable if the system starts no more threads."""
        self._threads.start(Task(kind="relay", run=lambda: asyncio.run(self._serve()), endless=True, restarts=False))

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._client, sock=self._socket, limit=MAX_HEAD_BYTES)
        async with server:
            await server.serve_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._open_connections.track_inprogress():
            try:
                head = await self._read_head(reader, writer)
                self._tunnels += 1
                try:
                    await self._tunnel(head, reader, writer)
                finally:
                    self._tunnels -= 1
            except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass  # one end disconnected or violated the protocol: no reply is possible
            except Exception:
                log.exception("relay.failed")
            finally:
                writer.close()

    async def _tunnel(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._tunnels > MAX_TUNNELS:
                raise Unavailable(f"this broker relays {MAX_TUNNELS} connections already: use another one with --via")
            connect, requested_target = parse_request(head)
            target = await asyncio.to_thread(self._targets.resolve, requested_target)
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                target_reader, target_writer = await asyncio.open_connection(*split_address(target), limit=READ_BYTES)
        except (SmqError, OSError) as error:
            message = error.message if isinstance(error, SmqError) else f"{requested_target} cannot be reached: {error}"
            left_out = self._log_limiter.admit(type(error).__name__)
            if left_out is not None:
                log.info("relay.request_refused", error=message, left_out=left_out)
            writer.write(_error_response(403 if isinstance(error, InvalidRequest) else 502, message))
            await writer.drain()
            return
        if connect:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            target_writer.write(head)
        try:
            copies = [
                asyncio.ensure_future(self._copy(*ends)) for ends in ((reader, target_writer), (target_reader, writer))
            ]
            # If one end closes, the other one is closed too: neither gRPC nor HTTP continues on half a connection.
            _, unfinished = await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
        finally:
            target_writer.close()

    async def _read_head(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Raises TimeoutError, LimitOverrunError, and IncompleteReadError if the connection ends."""
        for oldest in list(self._unknown)[: len(self._unknown) + 1 - MAX_UNKNOWN]:
            del self._unknown[oldest]
            oldest.transport.abort()
        self._unknown[writer] = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                return await reader.readuntil(b"\r\n\r\n")
        finally:
            self._unknown.pop(writer, None)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(READ_BYTES):
                sink.write(data)
                self._relayed_bytes.inc(len(data))
                await sink.drain()


def parse_request(head: bytes) -> tuple[bool, str]:
    """Whether the request is a CONNECT, and the ``host:port`` that it names. Raises InvalidRequest."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    address = rest.partition(" ")[0]
    if method != "CONNECT":
        try:
            url = urlsplit(address)
            host, port = url.hostname, url.port or 80
        except ValueError as error:
            raise InvalidRequest(f"{address!r} is no URL: {error}") from None
        if url.scheme != "http" or not host:
            raise InvalidRequest("this port relays SeaweedMQ clients: configure them with via=host:port or smq --via")
        address = join_address(host, port)
    try:
        split_address(address)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    return method == "CONNECT", address


def _error_response(status: int, message: str) -> bytes:
    body = message.encode()
    reason = {403: "Forbidden", 502: "Bad Gateway"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
