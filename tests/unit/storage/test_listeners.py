"""Listening at addresses of both families."""

import socket
from contextlib import closing

import pytest

from smq_storage.process.listeners import create_listener
from support.waiting import HANG_GUARD


def reachable(listener: socket.socket) -> set[str]:
    found = set()
    for host in ("127.0.0.1", "::1"):
        try:
            socket.create_connection((host, listener.getsockname()[1]), HANG_GUARD).close()
        except OSError:
            continue
        found.add(host)
    return found


@pytest.mark.parametrize(
    ("host", "expected"),
    [("::", {"127.0.0.1", "::1"}), ("::1", {"::1"}), ("127.0.0.1", {"127.0.0.1"}), ("0.0.0.0", {"127.0.0.1"})],
)
def test_a_listener_serves_the_families_of_its_address(host: str, expected: set[str]) -> None:
    with closing(create_listener(host, 0)) as listener:
        assert reachable(listener) == expected


def test_a_machine_without_ipv6_listens_over_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    class Ipv4Socket(real):
        def __init__(self, family: int = socket.AF_INET, *arguments: int, **options: int) -> None:
            if family == socket.AF_INET6:
                raise OSError("Address family not supported by protocol")
            super().__init__(family, *arguments, **options)

    monkeypatch.setattr(socket, "socket", Ipv4Socket)
    with closing(create_listener("::", 0)) as listener:
        assert reachable(listener) == {"127.0.0.1"}


def test_connections_send_small_messages_at_once() -> None:
    with (
        closing(create_listener("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), HANG_GUARD),
        closing(listener.accept()[0]) as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
