"""One port for TLS and clear text: which server gets a connection, and that all of it arrives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from smq_storage.process import shared_port
from smq_storage.process.listeners import create_listener
from smq_storage.process.shared_port import LOOPBACK, SharedPort
from support.waiting import wait_until

TLS, HTTP = b"\x16\x03\x01 hello", b"PRI * HTTP/2.0"
# More than all buffers of both connections.
LARGE = os.urandom(24 * 2**20)


class Echo:
    """Sends back what comes, after its name. ``peers`` are the addresses of its clients."""

    def __init__(self, name: bytes) -> None:
        self.name, self.port, self.ended = name, 0, 0
        self.peers: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")[:2]
        self.peers.append(f"ipv4:{host}:{port}")
        writer.write(self.name)
        try:
            while data := await reader.read(2**16):
                writer.write(data)
                await writer.drain()
        finally:
            self.ended += 1
            writer.close()


@asynccontextmanager
async def port_of(clear: Echo, tls: Echo | None) -> AsyncIterator[SharedPort]:
    servers = []
    for echo in filter(None, (clear, tls)):
        server = await asyncio.start_server(echo, LOOPBACK, 0)
        echo.port = server.sockets[0].getsockname()[1]
        servers.append(server)
    shared = SharedPort(create_listener(LOOPBACK, 0), clear=clear.port, tls=tls.port if tls is not None else None)
    await shared.start()
    try:
        yield shared
    finally:
        shared.close()
        for server in servers:
            server.close()


async def said_to(shared: SharedPort, data: bytes, length: int) -> bytes:
    reader, writer = await asyncio.open_connection(LOOPBACK, shared.port)
    writer.write(data)
    try:
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        return error.partial
    finally:
        writer.close()


async def test_the_first_byte_decides() -> None:
    clear, tls = Echo(b"clear:"), Echo(b"tls:")
    async with port_of(clear, tls) as shared:
        assert await said_to(shared, HTTP, 6 + len(HTTP)) == b"clear:" + HTTP
        assert await said_to(shared, TLS, 4 + len(TLS)) == b"tls:" + TLS
        assert (len(clear.peers), len(tls.peers)) == (1, 1)
        await wait_until(lambda: clear.ended == tls.ended == 1)


async def test_tls_is_never_taken_for_clear_text() -> None:
    clear = Echo(b"clear:")
    async with port_of(clear, None) as shared:
        assert await said_to(shared, TLS, 1) == b""
        assert not clear.peers
        tls = Echo(b"tls:")
        server = await asyncio.start_server(tls, LOOPBACK, 0)
        shared.tls = server.sockets[0].getsockname()[1]
        assert await said_to(shared, TLS, 4) == b"tls:"
        server.close()


async def test_much_arrives_in_both_directions_in_bounded_memory() -> None:
    async with port_of(Echo(b""), None) as shared:
        reader, writer = await asyncio.open_connection(LOOPBACK, shared.port)
        sending = asyncio.ensure_future(send(writer, HTTP + LARGE))
        assert await reader.readexactly(len(HTTP + LARGE)) == HTTP + LARGE
        await sending
        writer.close()


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    for start in range(0, len(data), 2**16):
        writer.write(data[start : start + 2**16])
        await writer.drain()


async def test_who_does_not_read_stops_the_other_side() -> None:
    taken = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        writer.transport.set_write_buffer_limits(2**16)
        while True:
            writer.write(b"x" * 2**16)
            await writer.drain()
            taken += 2**16

    server = await asyncio.start_server(pour, LOOPBACK, 0)
    shared = SharedPort(create_listener(LOOPBACK, 0), clear=server.sockets[0].getsockname()[1])
    await shared.start()
    reader, writer = await asyncio.open_connection(LOOPBACK, shared.port, limit=2**16)
    writer.write(HTTP)
    seen = -1
    while seen != taken:
        seen = taken
        for _ in range(200):
            await asyncio.sleep(0)
    assert 0 < taken < len(LARGE)
    await reader.readexactly(2 * taken)  # it goes on
    writer.close()
    shared.close()
    server.close()


async def test_the_end_of_one_side_is_the_end_of_the_other() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.close()

    server = await asyncio.start_server(hang_up, LOOPBACK, 0)
    clear = Echo(b"")
    async with port_of(clear, None) as shared:
        shared.clear = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(LOOPBACK, shared.port)
        writer.write(HTTP)
        assert await reader.read() == b"bye"
        writer.close()
        shared.clear = clear.port
        _, writer = await asyncio.open_connection(LOOPBACK, shared.port)
        writer.write(HTTP)
        await wait_until(lambda: bool(clear.peers))
        writer.close()
        await wait_until(lambda: clear.ended == 1)
        server.close()


async def test_a_server_that_is_away_ends_the_connection() -> None:
    clear = Echo(b"")
    async with port_of(clear, None) as shared:
        unused = create_listener(LOOPBACK, 0)
        shared.clear = unused.getsockname()[1]
        unused.close()
        assert await said_to(shared, HTTP, 1) == b""


async def test_who_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_port, "FIRST_BYTE_SECONDS", 0.05)
    clear = Echo(b"")
    async with port_of(clear, None) as shared:
        reader, writer = await asyncio.open_connection(LOOPBACK, shared.port)
        assert await reader.read() == b""
        assert not clear.peers
        writer.close()


async def test_the_client_of_a_call_is_known_while_it_is_connected() -> None:
    clear = Echo(b"")
    async with port_of(clear, None) as shared:
        reader, writer = await asyncio.open_connection(LOOPBACK, shared.port)
        writer.write(HTTP)
        await reader.readexactly(len(HTTP))
        host, port = writer.get_extra_info("sockname")
        assert shared.client_of(clear.peers[0]) == f"{host}:{port}"
        assert shared.client_of("ipv4:10.0.0.1:7") == "ipv4:10.0.0.1:7"
        writer.close()
        await wait_until(lambda: shared.client_of(clear.peers[0]) == clear.peers[0])
