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
from smq_operator.security.certificate_authority import CertificateAuthority
from smq_operator.security.leader_certificate import LEADER_CERTIFICATE_SECONDS, LeaderCertificate


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def test_it_is_renewed_at_half_its_life() -> None:
    clock = Clock()
    own = LeaderCertificate(CertificateAuthority.create("r1", now=clock.now), "leader-1", clock)
    first = own.current()
    uri = x509.load_pem_x509_certificates(first.chain)[0].extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    peer = parse_peer(uri.value.get_values_for_type(x509.UniformResourceIdentifier)[0])
    assert (peer.role, peer.release, peer.name) == (Role.LEADER, "r1", "leader-1")
    assert uri.value.get_values_for_type(x509.DNSName) == [LEADER_SERVER_NAME]
    clock.now += LEADER_CERTIFICATE_SECONDS / 2 - 1
    assert own.current() is first
    clock.now += 2
    assert own.current() is not first and own.current().expires_at > first.expires_at


async def test_a_server_shows_the_new_one_to_new_connections_and_keeps_those_that_are_open() -> None:
    clock = Clock()
    clock.now -= LEADER_CERTIFICATE_SECONDS / 2 + 60  # so that the second certificate counts already
    authority = CertificateAuthority.create("r1", now=clock.now)
    own = LeaderCertificate(authority, "leader-1", clock)
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", own.server_credentials())
    await server.start()

    def shown() -> int:
        context = ssl.create_default_context(cadata=authority.roots.decode())
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
        clock.now += LEADER_CERTIFICATE_SECONDS / 2 + 1
        second = await asyncio.to_thread(shown)
        assert second != first and await asyncio.to_thread(shown) == second
    finally:
        await server.stop(None)


def test_the_key_is_in_no_text() -> None:
    clock = Clock()
    own = LeaderCertificate(CertificateAuthority.create("r1", now=clock.now), "leader-1", clock)
    assert "PRIVATE" not in repr(own.current()) + repr(own)
    with pytest.raises(AttributeError):
        own.current().key = b""  # type: ignore[misc]
