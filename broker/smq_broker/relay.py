"""The way in for clients that reach no Pod: a tunnel through any broker to the leader, another broker or the filer.

It speaks HTTP CONNECT (RFC 9110, section 9.3.6), which gRPC, and so Arrow Flight, uses by itself; for an ``http://``
filer also the absolute form of a request (RFC 9112, section 3.2.2). What goes through is never looked at. Only targets
of this cluster are connected, so that nobody can use it as a way into the rest of the network.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from smq_broker.settings import split_address
from smq_broker.targets import Targets
from smq_core.errors import InvalidRequest, SmqError

FIRST_LINES_WITHIN = 5.0
CONNECT_WITHIN = 2.0
READ = 1 << 20

log = structlog.get_logger()


class Relay:
    """Serves in a thread of its own. ``address`` is where it listens. Raises OSError when the port cannot be had."""

    def __init__(self, listen: str, targets: Targets, registry: CollectorRegistry) -> None:
        host, port = split_address(listen)
        self._socket = socket.create_server((host, port))
        self._targets = targets
        self._open = Gauge("smq_relay_connections", "Connections that are relayed now.", registry=registry)
        self._bytes = Counter("smq_relay_bytes", "Bytes that were relayed, both ways.", registry=registry)
        self.address = f"{host}:{self._socket.getsockname()[1]}"

    def start(self) -> None:
        threading.Thread(target=lambda: asyncio.run(self._serve()), name="relay", daemon=True).start()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._client, sock=self._socket, limit=READ)
        async with server:
            await server.serve_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._open.track_inprogress():
            try:
                await self._tunnel(reader, writer)
            except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass  # either end went away, or spoke something else: there is nobody left to tell
            except Exception:
                log.exception("relay.failed")
            finally:
                writer.close()

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(FIRST_LINES_WITHIN):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            connect, asked = requested(head)
            target = await asyncio.to_thread(self._targets.resolve, asked)
            async with asyncio.timeout(CONNECT_WITHIN):
                there, back = await asyncio.open_connection(*split_address(target), limit=READ)
        except (SmqError, OSError) as error:
            message = error.message if isinstance(error, SmqError) else f"{asked} cannot be reached: {error}"
            log.info("relay.refused", error=message)
            writer.write(_refusal(403 if isinstance(error, InvalidRequest) else 502, message))
            await writer.drain()
            return
        if connect:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            back.write(head)
        try:
            both = [asyncio.ensure_future(self._copy(*ends)) for ends in ((reader, back), (there, writer))]
            # When one end is done, so is the other: neither gRPC nor HTTP goes on with half a connection.
            _, left = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        finally:
            back.close()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(READ):
                sink.write(data)
                self._bytes.inc(len(data))
                await sink.drain()


def requested(head: bytes) -> tuple[bool, str]:
    """Whether the request is a CONNECT, and the ``host:port`` that it asks for. Raises InvalidRequest."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    address = rest.partition(" ")[0]
    if method != "CONNECT":
        url = urlsplit(address)
        if url.scheme != "http" or not url.hostname:
            raise InvalidRequest("this port relays SeaweedMQ clients: give it to them as via=host:port, or smq --via")
        address = f"{url.hostname}:{url.port or 80}"
    try:
        split_address(address)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    return method == "CONNECT", address


def _refusal(status: int, message: str) -> bytes:
    body = message.encode()
    reason = {403: "Forbidden", 502: "Bad Gateway"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
