"""Finds the sockets of this process that belong to a new connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from smq.transport import sockets

ONE, OTHER = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def port() -> Iterator[int]:
    """At which both hosts listen, as brokers do that are Pods of one release."""
    with ExitStack() as stack:
        first = stack.enter_context(socket.create_server((ONE, 0)))
        port: int = first.getsockname()[1]
        stack.enter_context(socket.create_server((OTHER, port)))
        yield port


@pytest.mark.parametrize("mapped", ["", "::ffff:"])
def test_what_others_connect_to_the_same_port_of_another_host_is_not_taken(port: int, mapped: str) -> None:
    peer_addresses = sockets.peer_addresses(f"{ONE}:{port}")
    with socket.create_connection((ONE, port)):
        before = sockets.connections_to(peer_addresses)
        with (
            socket.create_connection((OTHER, port)) as another,
            socket.create_connection((mapped + ONE, port)) as mine,
        ):
            (found,) = sockets.new_connections(before, peer_addresses)
            assert found.getsockname() == mine.getsockname()
            sockets.shut_down([found])
            assert mine.recv(1) == b""
            assert another.send(b"x") == 1


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("127.0.0.1:7071", {bytes([127, 0, 0, 1])}),
        ("[::1]:7071", {bytes(15) + b"\1"}),
        ("[::ffff:10.0.0.7]:7071", {bytes([10, 0, 0, 7])}),
        ("no-such-host.invalid:7071", set()),
    ],
)
def test_the_peer_address_selects_the_socket(address: str, hosts: set[bytes]) -> None:
    assert sockets.peer_addresses(address) == {(host, 7071) for host in hosts}
