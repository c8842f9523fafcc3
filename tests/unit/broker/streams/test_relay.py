"""A relayed connection ends for both of its ends together, and strangers take little of the relay."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import ThreadSupervisor
from smq_broker.streams import relay as relay_module
from smq_broker.streams.relay import MAX_HEAD_BYTES, Relay
from smq_broker.streams.relay_targets import RelayTargets
from smq_core.model.addresses import split_address
from support.data.tricky_names import PARTS
from support.waiting import HANG_GUARD, eventually

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@dataclass(frozen=True)
class Tunnel:
    """Both ends of one relayed connection."""

    client: socket.socket
    target: socket.socket
    registry: CollectorRegistry

    def read_open_connections(self) -> float | None:
        return self.registry.get_sample_value("smq_relay_connections")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """The only target that the relay connects to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def relay(server: socket.socket, registry: CollectorRegistry) -> Relay:
    targets = RelayTargets(
        lambda: [],
        static_targets=[request_target(server)],
        list_brokers=lambda _: {},
        read_incarnation=lambda *_: "",
        clock=lambda: 0.0,
    )
    made = Relay("127.0.0.1:0", targets, registry, ThreadSupervisor(BrokerMetrics(registry)))
    made.start()
    return made


def request_target(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def connect(relay: Relay, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(split_address(relay.address), timeout=HANG_GUARD)
    client.sendall(sent)
    return client


@pytest.fixture
def tunnel(relay: Relay, server: socket.socket, registry: CollectorRegistry) -> Iterator[Tunnel]:
    with connect(relay, f"CONNECT {request_target(server)} HTTP/1.1\r\n\r\n".encode()) as client:
        server.settimeout(HANG_GUARD)
        target, _ = server.accept()
        with target:
            target.settimeout(HANG_GUARD)
            assert read(client, len(ESTABLISHED)) == ESTABLISHED
            yield Tunnel(client, target, registry)


def read(end: socket.socket, count: int) -> bytes:
    """That number of bytes, or what comes before the connection ends."""
    found = bytearray()
    while len(found) < count and (data := end.recv(count - len(found))):
        found += data
    return bytes(found)


def close(end: socket.socket) -> None:
    end.close()


def close_one_direction(end: socket.socket) -> None:
    """It still reads, and so the connection is half open."""
    end.shutdown(socket.SHUT_WR)


def reset(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


@pytest.mark.parametrize("how", [close, close_one_direction, reset])
@pytest.mark.parametrize("first", ["client", "target"])
def test_the_end_of_one_side_ends_the_other(tunnel: Tunnel, first: str, how: Callable[[socket.socket], None]) -> None:
    ends = {"client": tunnel.client, "target": tunnel.target}
    closing, other = ends.pop(first), ends.popitem()[1]
    assert tunnel.read_open_connections() == 1
    how(closing)
    assert other.recv(1) == b""
    if how is close_one_direction:
        assert closing.recv(1) == b""
    eventually(lambda: tunnel.read_open_connections() == 0, what="the relay has closed the connection")


def test_a_request_that_does_not_end_is_kept_to_a_few_kilobytes(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reaches the port can send one, on as many connections as it likes."""
    monkeypatch.setattr(relay_module, "REQUEST_TIMEOUT_SECONDS", 2 * HANG_GUARD)
    with connect(relay) as client:
        with suppress(OSError):  # it may be gone before all of it was sent
            client.sendall(b"CONNECT " + b"x" * (4 * MAX_HEAD_BYTES))
        assert ends(client)


def test_one_more_connection_without_a_request_ends_the_oldest(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "MAX_UNKNOWN", 3)
    monkeypatch.setattr(relay_module, "REQUEST_TIMEOUT_SECONDS", HANG_GUARD)
    with ExitStack() as open_connections:
        first, *others = [open_connections.enter_context(connect(relay)) for _ in range(4)]
        assert ends(first)
        for other in others:
            other.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert read(other, 12) == b"HTTP/1.1 403", "the others are served"


def test_the_number_of_tunnels_is_bounded(relay: Relay, server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "MAX_TUNNELS", 1)
    request = f"CONNECT {request_target(server)} HTTP/1.1\r\n\r\n".encode()
    with connect(relay, request) as first, connect(relay) as second:
        assert read(first, len(ESTABLISHED)) == ESTABLISHED
        second.sendall(request)
        assert b"relays 1 connections already" in read(second, 1000)
    eventually(lambda: accepts(relay, request), what="the relay takes another one")


def test_refused_requests_do_not_fill_the_log(relay: Relay) -> None:
    with capture_logs() as lines:
        for number in range(20):
            with connect(relay, f"CONNECT stranger-{number}:1 HTTP/1.1\r\n\r\n".encode()) as client:
                assert read(client, 12) == b"HTTP/1.1 403"
    assert [line["event"] for line in lines] == ["relay.request_refused"]


@pytest.mark.parametrize("form", ["CONNECT {}", "CONNECT {}:7070", "CONNECT leader{}:7070", "GET http://{}/x"])
def test_a_tricky_target_is_refused_in_words_that_harm_no_terminal(relay: Relay, form: str) -> None:
    for trick in PARTS:
        head = f"{form.format(trick)} HTTP/1.1\r\n\r\n".encode()
        if len(head) > MAX_HEAD_BYTES:
            continue
        with connect(relay, head) as client:
            status, _, rest = read(client, 1 << 16).decode().partition("\r\n")
        message = rest.partition("\r\n\r\n")[2]
        assert status == ("HTTP/1.1 502 Bad Gateway" if "given no leader" in message else "HTTP/1.1 403 Forbidden"), (
            trick
        )
        assert message.isprintable() and 0 < len(message) < 300, (trick, message)


def ends(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def accepts(relay: Relay, request: bytes) -> bool:
    with connect(relay, request) as client:
        return read(client, len(ESTABLISHED)) == ESTABLISHED
