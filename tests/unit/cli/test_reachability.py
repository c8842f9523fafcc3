"""Addresses at which nobody can answer, or something else does, are recognised at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from smq.cli.connection.reachability import check_leader, check_relay
from smq_core.errors import InvalidRequest, Unavailable
from support.waiting import HANG_GUARD


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that answers one connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(HANG_GUARD)


@pytest.mark.parametrize("port", ["0", "65536", "99999", "184467440737095516161"])
def test_a_port_that_cannot_be_is_named(port: str) -> None:
    for check, who in ((check_leader, "leader"), (check_relay, "relay")):
        with pytest.raises(Unavailable, match=f"no {who} at 127.0.0.1:{port}: there is no port {port}"):
            check(f"127.0.0.1:{port}", HANG_GUARD)


@pytest.mark.parametrize("address", ["foo", "foo:", "foo:bar", ""])
def test_what_is_no_address_is_named(address: str) -> None:
    for check, who in ((check_leader, "leader"), (check_relay, "relay")):
        with pytest.raises(Unavailable, match=f"no {who} at {address}: an address is host:port"):
            check(address, HANG_GUARD)


def test_the_first_address_that_connects_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_leader(f"127.0.0.1:99999,127.0.0.1:{server.getsockname()[1]}", HANG_GUARD)


@pytest.mark.parametrize("status", [200, 403, 502])
def test_what_answers_as_a_relay_is_one(status: int) -> None:
    with answering(f"HTTP/1.1 {status} So\r\n\r\n".encode()) as address:
        check_relay(address, HANG_GUARD)


@pytest.mark.parametrize(
    ("answer", "said"),
    [(b"HTTP/1.1 404 Not Found\r\n\r\n", "status 404 of HTTP"), (b"\0\0\6\4\0\0\0\0\0", "another protocol than HTTP")],
)
def test_what_answers_otherwise_is_no_relay(answer: bytes, said: str) -> None:
    with answering(answer) as address, pytest.raises(InvalidRequest, match=f"is no relay: it answers with {said}"):
        check_relay(address, HANG_GUARD)
