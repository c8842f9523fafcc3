"""The certificates are shown to a real Flight server, which decides who gets in."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from cryptography import x509

from smq_core.access.authority_rotation import CertificateLives
from smq_core.access.certificates import Certificate
from smq_core.access.peers import Peer, Role, broker_server_name, parse_peer
from smq_core.errors import InvalidRequest, Unavailable
from smq_operator.security.authority.certificate_authority import AuthorityKeys, CertificateAuthority, given_authority
from support.user_authority import UserAuthority

NOW = 1_700_000_000.0
BROKER = "0f8fad5b-d9cb-469f-a165-70867728950e.6553f100.0123abcd"


def authority() -> CertificateAuthority:
    return CertificateAuthority.create("r1", now=NOW)


def test_key_and_certificate_belong_together() -> None:
    made, other = authority(), authority()
    assert CertificateAuthority("r1", made.keys).roots == made.roots
    for chain, key in ((made.keys.chain, other.keys.key), (made.keys.chain, b""), (b"", made.keys.key)):
        with pytest.raises(InvalidRequest):
            CertificateAuthority("r1", AuthorityKeys(chain=chain, key=key))


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


def test_who_only_has_the_former_root_knows_the_next_authoritys_servers() -> None:
    former = CertificateAuthority.create("r1", now=time.time())
    made = CertificateAuthority.create("r1", now=time.time(), former=former)
    third = CertificateAuthority.create("r1", now=time.time())
    name = broker_server_name(BROKER)
    with server(replace(issue(made, Role.BROKER, BROKER, name), roots=former.roots + made.roots)) as port:
        for client in (issue(former, Role.CLIENT, "alice"), issue(made, Role.CLIENT, "alice")):
            for roots in (former.roots, made.roots, former.roots + made.roots):
                assert parse_peer(identity(port, client, roots, name)).name == "alice"
        with pytest.raises((pa.ArrowException, OSError)):
            identity(port, issue(made, Role.CLIENT, "alice"), third.roots, name)


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_an_authority_below_a_users_root_is_trusted_and_its_siblings_are_not(kind: str) -> None:
    root = UserAuthority("corporation")
    ours, sibling, renewed = (root.intermediate("smq", kind) for _ in range(3))
    made, other, again = (CertificateAuthority("r1", given_authority(*it)) for it in (ours, sibling, renewed))
    name = broker_server_name(BROKER)
    both = made.roots + again.roots
    with server(replace(issue(made, Role.BROKER, BROKER, name), roots=both)) as port:
        for roots in (made.roots, both, again.roots + made.roots, root.pem):
            assert parse_peer(identity(port, issue(again, Role.CLIENT, "alice"), roots, name)).name == "alice"
        with pytest.raises((pa.ArrowException, OSError)):
            identity(port, issue(other, Role.CLIENT, "alice"), made.roots, name)


def test_an_authority_is_trusted_without_those_above_it() -> None:
    root = UserAuthority("corporation")
    chain, key = root.intermediate("smq")
    made = CertificateAuthority("r1", given_authority(chain + root.pem, key))
    assert made.roots == chain
    issued = made.issue(Peer(Role.CLIENT, "r1", "a", int(time.time()) + 100), now=time.time())
    assert issued.chain.endswith(chain) and root.pem not in issued.chain


def test_what_is_no_authority_is_not_taken() -> None:
    root = UserAuthority("corporation")
    chain, key = root.intermediate("smq")
    leaf = root.intermediate("leaf", is_authority=False)
    for given in (leaf, (chain, leaf[1]), (b"", key), (chain, b"nonsense")):
        with pytest.raises(InvalidRequest):
            given_authority(*given)
    assert b"PRIVATE" not in repr(given_authority(chain, key)).encode()


def altered(pem: bytes, old: str, new: str) -> bytes:
    """The same with other bytes, which are in hexadecimal digits, in what is encoded."""
    first, *encoded, last = pem.decode().strip().splitlines()
    content = base64.b64decode("".join(encoded))
    assert bytes.fromhex(old) in content
    changed = base64.encodebytes(content.replace(bytes.fromhex(old), bytes.fromhex(new))).decode()
    return f"{first}\n{changed}{last}\n".encode()


CURVE, OTHER_CURVE = "2a8648ce3d030107", "2a8648ce3d03017f"
KEY_KIND, OTHER_KEY_KIND = "2a8648ce3d0201", "2a8648ce3d027f"


@pytest.mark.parametrize(
    ("of_key", "old", "new"),
    [
        (False, CURVE, OTHER_CURVE),
        (True, CURVE, OTHER_CURVE),
        (False, KEY_KIND, OTHER_KEY_KIND),
        (False, "551d0e", "551d13"),  # an extension twice
        (False, "a003020102", "a003020109"),  # X.509 v10
    ],
)
def test_an_authority_of_an_unknown_kind_is_refused_in_words(of_key: bool, old: str, new: str) -> None:
    chain, key = UserAuthority("corporation").intermediate("smq")
    given = (chain, altered(key, old, new)) if of_key else (altered(chain, old, new), key)
    with pytest.raises(InvalidRequest, match=r"not supported .*: use X.509 with a key of RSA"):
        given_authority(*given)


def test_nothing_outlives_its_authority() -> None:
    made = CertificateAuthority.create("r1", now=NOW, lives=CertificateLives(authority=100))
    assert made.end_of(NOW + 50) == NOW + 50 and made.end_of(NOW + 500) == NOW + 100
    with pytest.raises(Unavailable, match="has expired"):
        made.issue(Peer(Role.CLIENT, "r1", "a", int(NOW) + 900), now=NOW + 101)


def test_a_client_cannot_serve() -> None:
    made = CertificateAuthority.create("r1", now=time.time())
    now = time.time()
    posing = made.issue(Peer(Role.CLIENT, "r1", "alice", int(now) + 600), now=now)
    with server(posing) as port, pytest.raises((pa.ArrowException, OSError)):
        identity(port, issue(made, Role.CLIENT, "bob"), made.roots, broker_server_name(BROKER))
