"""The leader's connections to brokers over mutual TLS, to a real Flight server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow.flight as fl
import pytest
from google.protobuf.empty_pb2 import Empty

from smq_core.access.certificates import Certificate
from smq_core.access.peers import Peer, Role, broker_server_name, parse_peer
from smq_core.errors import Unavailable
from smq_core.model.entities import Replica
from smq_operator.brokers.calls import BrokerClients
from smq_operator.brokers.dialer import OPEN, SecureDialer
from smq_operator.security.authority.leader_certificate import LeaderCertificate
from support.in_memory.authorities import own_authorities


class _Broker(fl.FlightServerBase):  # type: ignore[misc]
    def do_action(self, context: Any, action: Any) -> list[bytes]:
        return [context.peer_identity()]


LIFE_SECONDS = 24 * 3600


@contextmanager
def broker(own: Certificate) -> Iterator[str]:
    certificates = [(own.chain, own.key)]
    with _Broker(
        "grpc+tls://127.0.0.1:0", tls_certificates=certificates, verify_client=True, root_certificates=own.roots
    ) as running:
        yield f"127.0.0.1:{running.port}"


class Release:
    def __init__(self) -> None:
        # So that a certificate that is renewed after half of its life counts already.
        self.now = time.time() - LIFE_SECONDS / 2 - 60
        authorities, _ = own_authorities(lambda: self.now)
        self.authority = authorities.signing
        self.own = LeaderCertificate(authorities, "leader-1", lambda: self.now)

    def broker_certificate(self, incarnation: str) -> Certificate:
        peer = Peer(Role.BROKER, "r1", incarnation, int(time.time()) + 600)
        return self.authority.issue(peer, now=self.now, server_names=[broker_server_name(incarnation)])


async def identity_at(brokers: BrokerClients, address: str, incarnation: str) -> Peer:
    replica = Replica("b1", incarnation, address)
    return parse_peer((await brokers.call(replica, "status", Empty(), timeout=5)).decode())


async def test_a_broker_and_the_leader_know_each_other() -> None:
    release = Release()
    brokers = BrokerClients(threads=2, dialer=SecureDialer(release.own))
    try:
        with broker(release.broker_certificate("i1")) as address:
            peer = await identity_at(brokers, address, "i1")
            assert (peer.role, peer.name) == (Role.LEADER, "leader-1")
            with pytest.raises(Unavailable):  # another incarnation has the address now
                await identity_at(brokers, address, "i2")
        with broker(Release().broker_certificate("i3")) as address, pytest.raises(Unavailable):
            await identity_at(brokers, address, "i3")
    finally:
        brokers.close()


async def test_a_connection_is_replaced_when_the_certificate_is() -> None:
    release = Release()
    brokers = BrokerClients(threads=2, dialer=SecureDialer(release.own))
    try:
        with broker(release.broker_certificate("i1")) as address:
            first = await identity_at(brokers, address, "i1")
            connection = brokers._connections["i1"]
            assert await identity_at(brokers, address, "i1") == first and brokers._connections["i1"] is connection
            release.now += LIFE_SECONDS / 2 + 1
            assert (await identity_at(brokers, address, "i1")).expires_at > first.expires_at
    finally:
        brokers.close()


async def test_an_open_release_connects_in_clear_text() -> None:
    brokers = BrokerClients(threads=2)
    try:
        with _Broker("grpc://127.0.0.1:0") as running:
            replica = Replica("b1", "i1", f"127.0.0.1:{running.port}")
            assert await brokers.call(replica, "status", Empty(), timeout=5) == b""
            connection = brokers._connections["i1"]
            assert await brokers.call(replica, "status", Empty(), timeout=5) == b""
            assert brokers._connections["i1"] is connection and OPEN.certificate() is None
    finally:
        brokers.close()


async def test_a_permissive_leader_connects_over_tls_to_whoever_speaks_it() -> None:
    release = Release()
    brokers = BrokerClients(threads=2, dialer=SecureDialer(release.own, permissive=True))
    try:
        with broker(release.broker_certificate("i1")) as address, _Broker("grpc://127.0.0.1:0") as clear:
            assert (await identity_at(brokers, address, "i1")).name == "leader-1"
            replica = Replica("b2", "i2", f"127.0.0.1:{clear.port}")
            assert await brokers.call(replica, "status", Empty(), timeout=5) == b"", "it shows no certificate there"
            connection = brokers._connections["i2"]
            assert await brokers.call(replica, "status", Empty(), timeout=5, urgent=True) == b""
            assert brokers._connections["i2"] is connection
    finally:
        brokers.close()


async def test_a_required_leader_connects_in_clear_text_to_nobody() -> None:
    release = Release()
    brokers = BrokerClients(threads=2, dialer=SecureDialer(release.own))
    try:
        with _Broker("grpc://127.0.0.1:0") as clear, pytest.raises(Unavailable, match="does not speak TLS"):
            await brokers.call(Replica("b1", "i1", f"127.0.0.1:{clear.port}"), "status", Empty(), timeout=5)
    finally:
        brokers.close()
