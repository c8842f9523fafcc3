"""The probes and the metrics over HTTP."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

from smq_core.errors import InvalidRequest
from smq_operator.runtime import http_server
from smq_operator.runtime.http_server import HttpServer
from support.waiting import HANG_GUARD

METRICS = "text/plain; version=1.0.0; charset=utf-8"
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def get(port: int, path: str) -> tuple[int, str, str]:
    """Status, content type and body."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HANG_GUARD) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


async def test_probes_metrics_and_unknown_paths() -> None:
    reason = "the filer does not answer"
    server = HttpServer(ready=lambda: reason, metrics=lambda: (b"smq_up 1\n", METRICS))
    port = await server.start("127.0.0.1:0")
    try:
        assert (await asyncio.to_thread(get, port, "/healthz"))[::2] == (200, "ok\n")
        assert (await asyncio.to_thread(get, port, "/readyz"))[::2] == (503, f"{reason}\n")
        reason = ""
        assert (await asyncio.to_thread(get, port, "/readyz?verbose"))[::2] == (200, "ok\n")
        assert await asyncio.to_thread(get, port, "/metrics") == (200, METRICS, "smq_up 1\n")
        assert (await asyncio.to_thread(get, port, "/other/path"))[0] == 404
        other = HttpServer(ready=lambda: "", metrics=lambda: (b"", METRICS))
        with pytest.raises(InvalidRequest, match=f"cannot listen on 127.0.0.1:{port} .* --http"):
            await other.start(f"127.0.0.1:{port}")
        await other.stop()
    finally:
        await server.stop()


def status_for(port: int, host: str) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/healthz", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=HANG_GUARD) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


async def test_a_public_name_is_refused_unless_it_was_chosen() -> None:
    server = HttpServer(ready=lambda: "", metrics=lambda: (b"", METRICS), hosts=["smq.example.org"])
    port = await server.start("127.0.0.1:0")
    try:
        for host, expected in (("smq-leader:80", 200), ("smq.example.org", 200), ("evil.example", 421)):
            assert await asyncio.to_thread(status_for, port, host) == expected, host
    finally:
        await server.stop()


def receive(client: socket.socket) -> bytes:
    """What arrives until the connection ends."""
    parts = []
    client.settimeout(HANG_GUARD)
    with suppress(ConnectionError):
        while part := client.recv(1 << 20):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"", b""), (REQUEST[:-2], b""), (REQUEST, b"HTTP/1.1 200")],
    ids=["nothing", "half a request", "one request"],
)
async def test_a_client_that_sends_nothing_more_is_disconnected(
    sent: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "TIMEOUT_SECONDS", 0.05)
    server = HttpServer(ready=lambda: "", metrics=lambda: (b"", METRICS))
    port = await server.start("127.0.0.1:0")
    try:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(sent)  # before the server has seen the connection
            received = await asyncio.to_thread(receive, client)
        assert received.startswith(answer) and bool(received) == bool(answer)
    finally:
        await server.stop()


async def test_a_client_that_does_not_read_its_answer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "TIMEOUT_SECONDS", 0.0)  # ends as soon as there is something to wait for
    large = 64 << 20  # more than the kernel buffers
    server = HttpServer(ready=lambda: "", metrics=lambda: (bytes(large), METRICS))
    port = await server.start("127.0.0.1:0")
    try:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(REQUEST.replace(b"/healthz", b"/metrics"))
            assert 0 < len(await asyncio.to_thread(receive, client)) < large
    finally:
        await server.stop()


async def test_one_connection_too_many_ends_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(http_server, "TIMEOUT_SECONDS", 10 * HANG_GUARD)
    server = HttpServer(ready=lambda: "", metrics=lambda: (b"", METRICS))
    port = await server.start("127.0.0.1:0")
    try:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert (await asyncio.to_thread(get, port, "/healthz"))[::2] == (200, "ok\n")
        async with asyncio.timeout(HANG_GUARD):
            with suppress(ConnectionError):
                assert await held[0][0].read() == b""
        held[1][1].write(REQUEST)
        assert (await held[1][0].readline()).startswith(b"HTTP/1.1 200")
        for _, writer in held:
            writer.close()
    finally:
        await server.stop()


async def test_a_server_that_was_never_started_can_be_stopped() -> None:
    await HttpServer(ready=lambda: "", metrics=lambda: (b"", METRICS)).stop()
