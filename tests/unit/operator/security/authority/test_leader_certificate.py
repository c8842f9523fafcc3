"""The leader's certificate and its renewal, shown to real clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time

import grpc
import pytest
from cryptography import x509

from smq_core.access.peers import LEADER_SERVER_NAME, Role, parse_peer
from smq_operator.security.authority.leader_certificate import LeaderCertificate
from support.in_memory.authorities import own_authorities

LIFE_SECONDS = 24 * 3600


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def test_it_is_renewed_at_half_its_life() -> None:
    clock = Clock()
    own = LeaderCertificate(own_authorities(clock)[0], "leader-1", clock)
    first = own.current()
    uri = x509.load_pem_x509_certificates(first.chain)[0].extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    peer = parse_peer(uri.value.get_values_for_type(x509.UniformResourceIdentifier)[0])
    assert (peer.role, peer.release, peer.name) == (Role.LEADER, "r1", "leader-1")
    assert uri.value.get_values_for_type(x509.DNSName) == [LEADER_SERVER_NAME]
    clock.now += LIFE_SECONDS / 2 - 1
    assert own.current() is first
    clock.now += 2
    assert own.current() is not first and own.current().expires_at > first.expires_at


async def test_a_server_shows_the_new_one_to_new_connections_and_keeps_those_that_are_open() -> None:
    clock = Clock()
    clock.now -= LIFE_SECONDS / 2 + 60  # so that the second certificate counts already
    authorities, _ = own_authorities(clock)
    own = LeaderCertificate(authorities, "leader-1", clock)
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", own.server_credentials())
    await server.start()

    def shown() -> int:
        context = ssl.create_default_context(cadata=authorities.signing.roots.decode())
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname=LEADER_SERVER_NAME) as secured,
        ):
            der = secured.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number

    try:
        first = await asyncio.to_thread(shown)
        assert await asyncio.to_thread(shown) == first
        clock.now += LIFE_SECONDS / 2 + 1
        second = await asyncio.to_thread(shown)
        assert second != first and await asyncio.to_thread(shown) == second
    finally:
        await server.stop(None)


def test_the_key_is_in_no_text() -> None:
    clock = Clock()
    own = LeaderCertificate(own_authorities(clock)[0], "leader-1", clock)
    assert "PRIVATE" not in repr(own.current()) + repr(own)
    with pytest.raises(AttributeError):
        own.current().key = b""  # type: ignore[misc]


async def test_it_is_replaced_when_another_authority_signs_or_the_bundle_changes() -> None:
    clock = Clock()
    authorities, _ = own_authorities(clock)
    own = LeaderCertificate(authorities, "leader-1", clock)
    first = own.current()
    await authorities.rotate()
    introduced = own.current()
    assert introduced is not first and introduced.roots != first.roots
    assert own.current() is introduced
    clock.now += authorities.lives.client
    await authorities.step(True, lambda: [])
    assert own.current() is not introduced and own.current().roots == introduced.roots


async def test_it_keeps_what_it_has_while_the_authority_has_expired() -> None:
    clock = Clock()
    authorities, _ = own_authorities(clock)
    own = LeaderCertificate(authorities, "leader-1", clock)
    clock.now = authorities.signing.expires_at + 1
    assert own.current().expires_at < clock.now
