"""Callers with certificates of an authority of the user, and how their tokens can be wrong."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from smq_core.access.authority_rotation import CertificateLives
from smq_core.errors import InvalidRequest, Unauthenticated
from smq_operator.runtime.external_callers import ClientAuthoritySettings
from smq_operator.security.authority.certificate_authority import CertificateAuthority
from smq_operator.security.identities.certificate_tokens import CertificateTokens
from smq_operator.security.identities.external_caller import LEEWAY_SECONDS
from smq_proto.certificate_tokens import LIFE_SECONDS, MAX_CHAIN, TOKEN_TYPE, audiences, sign_token
from support.user_authority import PrivateKey, UserAuthority

CN, ORGANIZATION = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME


class Release:
    """A leader that takes certificates of ``authority``. ``now`` is its clock's time."""

    def __init__(self, folder: Path) -> None:
        self.authority = UserAuthority("company")
        self.file = folder / "clients.crt"
        self.file.write_bytes(self.authority.pem)
        self.now = time.time()
        self.roots = new_roots("release")
        settings = ClientAuthoritySettings(ca_file=self.file)
        self.tokens = CertificateTokens(settings, lambda: self.roots, lambda: self.now)

    def token(self, chain: bytes, key: bytes) -> str:
        return sign_token(chain=chain, key=key, roots=self.roots, now=self.now)


def new_roots(release: str) -> bytes:
    return CertificateAuthority.create(release, now=time.time(), lives=CertificateLives()).roots


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return Release(tmp_path)


KEYS: list[Callable[[], PrivateKey]] = [
    lambda: rsa.generate_private_key(65537, 2048),
    lambda: ec.generate_private_key(ec.SECP256R1()),
    lambda: ec.generate_private_key(ec.SECP384R1()),
    lambda: ec.generate_private_key(ec.SECP521R1()),
    ed25519.Ed25519PrivateKey.generate,
]


@pytest.mark.parametrize("new_key", KEYS)
async def test_a_caller_is_who_its_certificate_says(release: Release, new_key: Callable[[], PrivateKey]) -> None:
    chain, key = release.authority.client((CN, "alice"), (ORGANIZATION, "analysts"), (ORGANIZATION, "x"), key=new_key())
    token = release.token(chain, key)
    assert release.tokens.recognises(token)
    caller = await release.tokens.verify(token)
    assert (caller.identity, caller.groups) == ("cert:alice", ("cert:analysts", "cert:x"))
    assert (caller.method, caller.is_broker) == ("ClientCertificate", False)
    assert caller.expires_at == x509.load_pem_x509_certificate(chain).not_valid_after_utc.timestamp()


async def test_authorities_between_the_certificate_and_its_root_come_with_the_token(release: Release) -> None:
    department = UserAuthority("department", above=release.authority)
    chain, key = department.client((CN, "bob"), usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    assert (await release.tokens.verify(release.token(chain + department.pem, key))).identity == "cert:bob"
    with pytest.raises(Unauthenticated, match="--client-ca-file"):
        await release.tokens.verify(release.token(chain, key))
    with pytest.raises(InvalidRequest, match=f"{MAX_CHAIN} at most"):
        release.token(chain + MAX_CHAIN * department.pem, key)


@pytest.mark.parametrize("wrong", ["another authority", "expired", "not a client", "its own authority", "an authority"])
async def test_other_certificates_do_not_count(release: Release, wrong: str) -> None:
    alice = (CN, "alice")
    if wrong == "another authority":
        chain, key = UserAuthority("company").client(alice)
    elif wrong == "expired":
        chain, key = release.authority.client(alice, life=-30)
    elif wrong == "not a client":
        chain, key = release.authority.client(alice, usage=ExtendedKeyUsageOID.SERVER_AUTH)
    elif wrong == "its own authority":
        authority = UserAuthority("alice")
        chain, key = authority.client(alice)
        chain += authority.pem
    else:
        chain, key = release.authority.intermediate("alice")
    with pytest.raises(Unauthenticated, match="client certificate does not count"):
        await release.tokens.verify(release.token(chain, key))


async def test_a_token_counts_in_the_release_that_it_was_made_for_only(release: Release) -> None:
    token = release.token(*release.authority.client((CN, "alice")))
    former, release.roots = release.roots, new_roots("other")
    with pytest.raises(Unauthenticated, match="Audience"):
        await release.tokens.verify(token)
    release.roots += former  # the bundle during a rotation
    assert (await release.tokens.verify(token)).identity == "cert:alice"


@pytest.mark.parametrize(
    ("seconds", "counts"),
    [
        (-LEEWAY_SECONDS - 2, False),
        (-LEEWAY_SECONDS + 1, True),
        (LIFE_SECONDS + LEEWAY_SECONDS - 1, True),
        (LIFE_SECONDS + LEEWAY_SECONDS + 1, False),
    ],
)
async def test_a_token_counts_for_minutes(release: Release, seconds: float, counts: bool) -> None:
    token = release.token(*release.authority.client((CN, "alice"), life=10_000))
    release.now += seconds
    if counts:
        await release.tokens.verify(token)
    else:
        with pytest.raises(Unauthenticated, match="compare the clocks"):
            await release.tokens.verify(token)


async def test_nobody_makes_a_token_last_longer(release: Release) -> None:
    chain, key = release.authority.client((CN, "alice"), life=100_000)
    claims = {"exp": int(release.now + 50_000)}
    await release.tokens.verify(forged(release, chain, key, **claims))
    release.now += LIFE_SECONDS + LEEWAY_SECONDS + 1
    with pytest.raises(Unauthenticated, match="expired"):
        await release.tokens.verify(forged(release, chain, key, iat=int(release.now - 3000), **claims))


def forged(release: Release, chain: bytes, key: bytes, **claims: Any) -> str:
    """A token with other claims than the usual ones, signed by ``key``."""
    x5c = jwt.get_unverified_header(release.token(chain, key))["x5c"]
    private: Any = serialization.load_pem_private_key(key, None)
    now = int(release.now)
    body = {"aud": audiences(release.roots), "iat": now, "exp": now + 60} | claims
    return jwt.encode(body, private, "ES256", headers={"typ": TOKEN_TYPE, "x5c": x5c})


async def test_a_token_is_signed_by_the_key_of_its_certificate(release: Release) -> None:
    chain, key = release.authority.client((CN, "alice"))
    good = release.token(chain, key)
    head, body, _ = good.split(".")
    _, other = release.authority.client((CN, "mallory"))
    private: Any = serialization.load_pem_private_key(other, None)
    x5c = jwt.get_unverified_header(good)["x5c"]
    stolen = jwt.encode(
        jwt.decode(good, options={"verify_signature": False}), private, "ES256", {"typ": TOKEN_TYPE, "x5c": x5c}
    )
    with pytest.raises(InvalidRequest, match="not that of the first certificate"):
        release.token(chain, other)
    for token in (stolen, f"{head}.{body}.", f"{head}.{body}.AAAA"):
        with pytest.raises(Unauthenticated, match="does not count here"):
            await release.tokens.verify(token)


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
async def test_other_algorithms_than_that_of_the_key_do_not_count(release: Release, algorithm: str) -> None:
    good = release.token(*release.authority.client((CN, "alice")))
    claims = jwt.decode(good, options={"verify_signature": False})
    header = {"typ": TOKEN_TYPE, "x5c": jwt.get_unverified_header(good)["x5c"]}
    key = "" if algorithm == "none" else "k" * 64
    token = jwt.encode(claims, key, algorithm, header)
    with pytest.raises(Unauthenticated, match="does not count here"):
        await release.tokens.verify(token)


@pytest.mark.parametrize("subject", [(), ((ORGANIZATION, "x"),), ((CN, "a"), (CN, "b")), ((CN, "a\x1b[2J"),)])
async def test_a_certificate_names_one_caller(release: Release, subject: tuple[Any, ...]) -> None:
    token = release.token(*release.authority.client(*subject))
    with pytest.raises(Unauthenticated, match="CN"):
        await release.tokens.verify(token)


@pytest.mark.parametrize("x5c", [None, [], "AAAA", ["AAAA"], [7], ["A"] * (MAX_CHAIN + 1), {}])
async def test_a_token_without_a_chain_is_none(release: Release, x5c: Any) -> None:
    token = jwt.encode({}, "k" * 64, "HS256", {"typ": TOKEN_TYPE, "x5c": x5c})
    with pytest.raises(Unauthenticated, match="no chain"):
        await release.tokens.verify(token)


async def test_a_certificate_of_an_unknown_version_is_none(release: Release) -> None:
    chain, _ = release.authority.client((CN, "alice"))
    der = x509.load_pem_x509_certificate(chain).public_bytes(serialization.Encoding.DER)
    later = der.replace(bytes.fromhex("a003020102"), bytes.fromhex("a003020109"))
    assert later != der
    token = jwt.encode({}, "k" * 64, "HS256", {"typ": TOKEN_TYPE, "x5c": [base64.b64encode(later).decode()]})
    with pytest.raises(Unauthenticated, match="no chain"):
        await release.tokens.verify(token)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "smq-broker.a.b", jwt.encode({}, "k" * 64, "HS256")])
def test_other_tokens_are_not_recognised(release: Release, token: str) -> None:
    assert not release.tokens.recognises(token)


async def test_the_file_of_authorities_is_read_anew(release: Release) -> None:
    other = UserAuthority("other")
    token = release.token(*other.client((CN, "alice")))
    release.file.write_bytes(release.authority.pem + other.pem)
    assert (await release.tokens.verify(token)).identity == "cert:alice"
    release.file.write_bytes(b"-----BEGIN")
    assert (await release.tokens.verify(token)).identity == "cert:alice"
    release.file.write_bytes(release.authority.pem)
    with pytest.raises(Unauthenticated):
        await release.tokens.verify(token)


@pytest.mark.parametrize("prefix", ["", " ", "system:", "a\n"])
def test_the_prefix_keeps_callers_apart(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        ClientAuthoritySettings(ca_file=Path("x"), prefix=prefix)
