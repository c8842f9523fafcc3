"""One port for TLS and for clear text: each connection goes on to one of two servers of this process.

Neither gRPC nor Flight serves both on one port. The first byte of a connection says which it is. Nothing is decrypted
here, so the certificates of both sides are checked by the servers and the clients themselves.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from smq_core.model.addresses import join_address

# The type of the record that a TLS client sends first (RFC 8446, section 5.1). HTTP/2 begins with the letter P.
TLS_HANDSHAKE = 0x16
LOOPBACK = "127.0.0.1"
# A client of gRPC sends at once. Who sends nothing occupies a connection.
FIRST_BYTE_SECONDS = 10.0
# Of what one side has sent and the other one has not taken yet.
MAX_BUFFERED_BYTES = 1 << 20


class SharedPort:
    """``clear`` and ``tls`` are the ports of the servers on loopback.

    While ``tls`` is None, TLS connections are closed. Use it on one event loop, but ``client_of`` in any thread.
    """

    def __init__(self, listener: socket.socket, *, clear: int, tls: int | None = None) -> None:
        self.clear = clear
        self.tls = tls
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._server: asyncio.Server | None = None
        self._clients: dict[str, str] = {}
        """By the address from which this port connects to a server: the client's."""

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), sock=self._listener)

    async def serve(self) -> None:
        """Serves until it is cancelled."""
        await self.start()
        assert self._server is not None
        await self._server.serve_forever()

    def close(self) -> None:
        """Takes no more connections. Those that are open go on."""
        if self._server is not None:
            self._server.close()
        self._listener.close()

    def client_of(self, peer: str) -> str:
        """The client of a call that comes from ``peer``, as gRPC and Flight say it: ``ipv4:127.0.0.1:51324``."""
        return self._clients.get(peer.partition(":")[2], peer)

    async def connect(self, client: _Client, first: bytes) -> None:
        """Called with the first bytes of a client."""
        port = self.tls if first[0] == TLS_HANDSHAKE else self.clear
        if port is None:
            client.transport.close()
            return
        try:
            loop = asyncio.get_running_loop()
            transport, server = await loop.create_connection(lambda: _End(client), LOOPBACK, port)
        except OSError:  # that server is being replaced: gRPC tries again
            client.transport.close()
            return
        own = join_address(*transport.get_extra_info("sockname")[:2])
        self._clients[own] = join_address(*client.transport.get_extra_info("peername")[:2])
        server.on_end = lambda: self._clients.pop(own, None)
        client.join(server, first)


class _End(asyncio.Protocol):
    """One of the two connections of a client. What comes here goes to ``other``, no faster than that one takes it."""

    def __init__(self, other: _End | None = None) -> None:
        self.other = other
        self.on_end: Callable[[], object] = lambda: None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(MAX_BUFFERED_BYTES)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """Neither gRPC nor HTTP/2 goes on over half a connection. What the other side has not taken yet is sent."""
        self.on_end()
        if self.other is not None:
            self.other.transport.close()


class _Client(_End):
    """A client's connection, which has no other end before its first bytes have come."""

    def __init__(self, port: SharedPort) -> None:
        super().__init__()
        self._port = port
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.on_end = asyncio.get_running_loop().call_later(FIRST_BYTE_SECONDS, self.transport.close).cancel

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self.on_end()
        self.transport.pause_reading()
        self._connecting = asyncio.ensure_future(self._port.connect(self, data))

    def join(self, server: _End, first: bytes) -> None:
        """``first`` has come already."""
        self.other = server
        if self.transport.is_closing():
            server.transport.close()
            return
        server.transport.write(first)
        self.transport.resume_reading()
