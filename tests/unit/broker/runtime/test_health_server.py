"""The HTTP port serves few requests at once, and none that a web page sends to its own name."""

from __future__ import annotations

import http.client
import socket
import struct
import threading

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from smq_broker.runtime import health
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.health import HealthServer
from smq_broker.runtime.threads import ThreadSupervisor
from support.waiting import HANG_GUARD, eventually


def serve() -> tuple[str, int]:
    registry = CollectorRegistry()
    threads = ThreadSupervisor(BrokerMetrics(registry))
    host, port = HealthServer("127.0.0.1:0", registry, lambda: None, threads).address.split(":")
    return host, int(port)


def get(address: tuple[str, int], host: str = "localhost") -> int:
    connection = http.client.HTTPConnection(*address, timeout=HANG_GUARD)
    connection.request("GET", "/readyz", headers={"Host": host})
    return connection.getresponse().status


def test_a_public_name_is_refused() -> None:
    address = serve()
    assert get(address) == 200
    assert get(address, "evil.example") == 421


def test_one_request_too_many_ends_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_REQUESTS", 2)
    monkeypatch.setattr(health, "REQUEST_TIMEOUT_SECONDS", 10 * HANG_GUARD)
    address = serve()
    oldest, second = (socket.create_connection(address, timeout=HANG_GUARD) for _ in range(2))

    assert get(address) == 200

    assert oldest.recv(1) == b""
    second.sendall(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert second.recv(12) == b"HTTP/1.0 200"
    oldest.close()
    second.close()


def test_a_client_that_sends_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "REQUEST_TIMEOUT_SECONDS", 0.05)
    with socket.create_connection(serve(), timeout=HANG_GUARD) as connection:
        assert connection.recv(1) == b""


def test_a_client_that_goes_away_is_not_logged() -> None:
    address = serve()
    with capture_logs() as logs:
        client = socket.create_connection(address)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # with a reset
        assert get(address) == 200
        eventually(lambda: not [it for it in threading.enumerate() if it.name == "http-request"], "both have ended")
    assert not logs
