"""The certificates are shown to a real Flight server, which decides who gets in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from cryptography import x509

from smq_core.access.certificates import Certificate
from smq_core.access.peers import Peer, Role, broker_server_name, parse_peer
from smq_core.errors import InvalidRequest
from smq_operator.security.certificate_authority import CertificateAuthority

NOW = 1_700_000_000.0
BROKER = "0f8fad5b-d9cb-469f-a165-70867728950e.6553f100.0123abcd"


def authority() -> CertificateAuthority:
    return CertificateAuthority.create("r1", now=NOW)


def test_an_authority_is_kept_as_text() -> None:
    made = authority()
    kept = CertificateAuthority(*made.to_pem())
    assert (kept.release, kept.roots) == ("r1", made.roots)
    _, other_key = authority().to_pem()
    for chain, key in ((made.roots, other_key), (made.roots, b""), (b"", made.to_pem()[1])):
        with pytest.raises(InvalidRequest):
            CertificateAuthority(chain, key)


def test_a_certificate_says_who_it_is_and_until_when() -> None:
    peer = Peer(Role.CLIENT, "r1", "system:serviceaccount:travel:spark", int(NOW) + 900)
    issued = authority().issue(peer, now=NOW)
    certificate = x509.load_pem_x509_certificates(issued.chain)[0]
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert parse_peer(names.get_values_for_type(x509.UniformResourceIdentifier)[0]) == peer
    assert certificate.not_valid_after_utc.timestamp() == issued.expires_at == peer.expires_at
    assert issued.renew_at() == NOW + 450
    assert b"PRIVATE" not in repr(issued).encode()


@pytest.mark.parametrize("peer", [Peer(Role.CLIENT, "r2", "a", int(NOW) + 1), Peer(Role.CLIENT, "r1", "a", int(NOW))])
def test_no_certificate_of_another_release_or_of_the_past(peer: Peer) -> None:
    with pytest.raises(InvalidRequest):
        authority().issue(peer, now=NOW)


class _Server(fl.FlightServerBase):  # type: ignore[misc]
    def do_action(self, context: Any, action: Any) -> list[bytes]:
        return [context.peer_identity()]


def issue(made: CertificateAuthority, role: Role, name: str, *server_names: str) -> Certificate:
    now = time.time()
    return made.issue(Peer(role, made.release, name, int(now) + 600), now=now, server_names=server_names)


@contextmanager
def server(own: Certificate) -> Iterator[int]:
    certificates = [(own.chain, own.key)]
    with _Server(
        "grpc+tls://127.0.0.1:0", tls_certificates=certificates, verify_client=True, root_certificates=own.roots
    ) as running:
        yield running.port


def identity(port: int, own: Certificate | None, roots: bytes, name: str) -> str:
    keys = {"cert_chain": own.chain, "private_key": own.key} if own is not None else {}
    with fl.connect(f"grpc+tls://127.0.0.1:{port}", tls_root_certs=roots, override_hostname=name, **keys) as client:
        results = list(client.do_action(fl.Action("x", b""), fl.FlightCallOptions(timeout=10)))
    return results[0].body.to_pybytes().decode()


def test_only_a_peer_of_the_release_gets_past_the_handshake() -> None:
    made, stranger = (CertificateAuthority.create("r1", now=time.time()) for _ in range(2))
    name = broker_server_name(BROKER)
    broker, client = issue(made, Role.BROKER, BROKER, name), issue(made, Role.CLIENT, "alice")
    with server(broker) as port:
        assert parse_peer(identity(port, client, made.roots, name)).name == "alice"
        assert parse_peer(identity(port, broker, made.roots, name)).role is Role.BROKER
        refused = [
            (None, made.roots, name),
            (issue(stranger, Role.CLIENT, "alice"), made.roots, name),
            (client, stranger.roots, name),
            (client, made.roots, broker_server_name("f" * 32)),
        ]
        for own, roots, wanted in refused:
            with pytest.raises((pa.ArrowException, OSError)):
                identity(port, own, roots, wanted)


def test_a_client_cannot_serve() -> None:
    made = CertificateAuthority.create("r1", now=time.time())
    now = time.time()
    posing = made.issue(Peer(Role.CLIENT, "r1", "alice", int(now) + 600), now=now)
    with server(posing) as port, pytest.raises((pa.ArrowException, OSError)):
        identity(port, issue(made, Role.CLIENT, "bob"), made.roots, broker_server_name(BROKER))
