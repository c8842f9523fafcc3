"""The HTTP port serves few requests at once, and none that a web page sends to its own name."""

from __future__ import annotations

import http.client
import socket

import pytest
from prometheus_client import CollectorRegistry

from smq_broker.runtime import health
from smq_broker.runtime.health import HealthServer
from smq_broker.runtime.metrics import BrokerMetrics
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


def test_few_requests_are_served_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_REQUESTS", 2)
    monkeypatch.setattr(health, "REQUEST_TIMEOUT_SECONDS", HANG_GUARD)
    address = serve()
    held = [socket.create_connection(address) for _ in range(2)]

    def is_refused() -> bool:
        try:
            return get(address) != 200
        except OSError:
            return True

    eventually(is_refused, "a third one is disconnected")
    for connection in held:
        connection.close()
    eventually(lambda: not is_refused(), "there is capacity again")


def test_a_client_that_sends_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "REQUEST_TIMEOUT_SECONDS", 0.05)
    with socket.create_connection(serve(), timeout=HANG_GUARD) as connection:
        assert connection.recv(1) == b""
