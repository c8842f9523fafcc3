"""A relayed connection ends for both of its ends together."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry

from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import ThreadSupervisor
from smq_broker.streams.relay import Relay
from smq_broker.streams.relay_targets import RelayTargets
from smq_core.model.addresses import split_address
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
def tunnel() -> Iterator[Tunnel]:
    registry = CollectorRegistry()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        targets = RelayTargets(
            lambda: [],
            static_targets=[address],
            list_brokers=lambda _: {},
            read_incarnation=lambda *_: "",
            clock=lambda: 0.0,
        )
        relay = Relay("127.0.0.1:0", targets, registry, ThreadSupervisor(BrokerMetrics(registry)))
        relay.start()
        with socket.create_connection(split_address(relay.address), timeout=HANG_GUARD) as client:
            client.sendall(f"CONNECT {address} HTTP/1.1\r\n\r\n".encode())
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
