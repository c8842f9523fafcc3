"""Tokens of an issuer that runs, and how they can be wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from smq_core.errors import Unauthenticated, Unavailable
from smq_operator.runtime.external_callers import OidcSettings
from smq_operator.security.identities.oidc import issuer_documents
from smq_operator.security.identities.oidc.issuer_keys import COOLDOWN_SECONDS, KEYS_SECONDS, IssuerKeys
from smq_operator.security.identities.oidc.oidc_tokens import OidcTokens
from smq_operator.security.identities.tokens import BrokerTokens, ReleaseTokens, StaticTokens, token_digest
from support.oidc_issuer import AUDIENCE, Issuer, described, new_key


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


def tokens_of(issuer: Issuer, clock: Clock, **more: str) -> OidcTokens:
    settings = OidcSettings(issuer=issuer.url, audience=AUDIENCE, **more)
    return OidcTokens(settings, IssuerKeys(issuer.url, clock))


def segment(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256", "EdDSA"])
async def test_a_caller_is_who_the_issuer_says(issuer: Issuer, clock: Clock, algorithm: str) -> None:
    issuer.add_key("other", algorithm)
    expiry = int(time.time()) + 60
    tokens = tokens_of(issuer, clock)
    token = issuer.token("other", groups=["analysts", "x"], exp=expiry, aud=["another", AUDIENCE])
    assert tokens.recognises(token)
    caller = await tokens.verify(token)
    assert (caller.identity, caller.groups) == ("oidc:alice", ("oidc:analysts", "oidc:x"))
    assert (caller.method, caller.expires_at, caller.is_broker) == ("OIDC", expiry, False)


async def test_claims_and_prefix_are_settings(issuer: Issuer, clock: Clock) -> None:
    tokens = tokens_of(issuer, clock, identity_claim="email", groups_claim="roles", prefix="sso#")
    caller = await tokens.verify(issuer.token(email="a@b.c", email_verified=True, roles="admins"))
    assert (caller.identity, caller.groups) == ("sso#a@b.c", ("sso#admins",))
    for claims in ({}, {"email": "a@b.c"}, {"email": "a@b.c", "email_verified": "true"}):
        with pytest.raises(Unauthenticated, match="email"):
            await tokens.verify(issuer.token(**claims))


async def test_each_kind_of_token_has_its_own_callers(issuer: Issuer, clock: Clock, tmp_path: Path) -> None:
    """Also where the issuer gives somebody the name of another kind of caller."""
    digest = token_digest("static").hex()
    (tmp_path / "tokens.yaml").write_text(f"tokens: [{{identity: alice, sha256: {digest}}}]")
    brokers = BrokerTokens(b"k" * 32, lambda _: False)
    release = ReleaseTokens([brokers, tokens_of(issuer, clock)], StaticTokens(tmp_path / "tokens.yaml"))
    assert (await release.verify("static")).identity == "alice" and issuer.calls == []
    assert (await release.verify(brokers.issue("i1"))).incarnation == "i1"
    for name in ("alice", "broker i1", "system:serviceaccount:queue:smq-broker"):
        found = await release.verify(issuer.token(sub=name))
        assert (found.identity, found.is_broker) == (f"oidc:{name}", False)
    with pytest.raises(Unauthenticated, match="does not know this token"):
        await release.verify(issuer.token(iss="https://another.example"))


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("expired", {"exp": 1000}),
    ("not yet valid", {"nbf": 4e9}),
    ("another audience", {"aud": "another"}),
    ("another issuer", {"iss": "https://another.example"}),
    ("a sub that is no text", {"sub": 7}),
    ("an empty sub", {"sub": ""}),
    ("line breaks", {"sub": "alice\nadmin"}),
    ("a long name", {"sub": "a" * 300}),
    ("groups that are none", {"groups": {"admins": True}}),
    ("a group that is no text", {"groups": ["a", 1]}),
    ("many groups", {"groups": ["g"] * 201}),
    *[(f"no {claim}", {claim: None}) for claim in ("exp", "iss", "sub", "aud")],
]


@pytest.mark.parametrize(("what", "claims"), WRONG, ids=[what for what, _ in WRONG])
async def test_a_token_with_wrong_claims_does_not_count(
    issuer: Issuer, clock: Clock, what: str, claims: dict[str, Any]
) -> None:
    token = issuer.token(**claims)
    with pytest.raises(Unauthenticated) as caught:
        await tokens_of(issuer, clock).verify(token)
    assert token.split(".")[2] not in caught.value.message


async def test_an_algorithm_is_that_of_the_key(issuer: Issuer, clock: Clock) -> None:
    tokens = tokens_of(issuer, clock)
    key, _ = issuer.keys["first"]
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "mallory", "exp": time.time() + 3600}
    unsigned = f"{segment({'alg': 'none', 'kid': 'first'})}.{segment(claims)}."
    signed = f"{segment({'alg': 'HS256', 'kid': 'first'})}.{segment(claims)}"
    mac = base64.urlsafe_b64encode(hmac.new(public, signed.encode(), hashlib.sha256).digest()).rstrip(b"=").decode()
    other = new_key("RS256")
    forged = jwt.encode(claims, other, "RS256", headers={"kid": "first"})
    own_key = jwt.encode(claims, other, "RS256", headers={"kid": "first", "jwk": described(other, "first")})
    for token in (unsigned, f"{signed}.{mac}", forged, own_key, issuer.token()[:-4], "a.b.c", ""):
        with pytest.raises(Unauthenticated):
            await tokens.verify(token)


async def test_keys_that_are_none_are_left_out(issuer: Issuer, clock: Clock) -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "shared", "alg": "HS256"}
    issuer.listed = [
        secret,
        described(new_key("RS256"), "encrypts", use="enc"),
        described(new_key("RS256", 1024), "weak"),
        described(new_key("RS256"), "odd", alg="HS256"),
        {"kty": "RSA", "kid": "broken"},
        {"kty": ["RSA"]},
        *issuer.listed,
    ]
    keys = IssuerKeys(issuer.url, clock)
    await keys.find("first")
    for key_id in ("shared", "encrypts", "weak", "odd", "broken", ""):
        with pytest.raises(Unauthenticated):
            await keys.find(key_id)
    token = jwt.encode({"iss": issuer.url}, "secretsecretsecretsecretsecretsecret", "HS256", headers={"kid": "shared"})
    with pytest.raises(Unauthenticated):
        await tokens_of(issuer, clock).verify(token)


async def test_unknown_keys_make_one_fetch_and_then_wait(issuer: Issuer, clock: Clock) -> None:
    tokens = tokens_of(issuer, clock)
    await tokens.verify(issuer.token())
    assert issuer.calls == ["/.well-known/openid-configuration", "/keys"]
    issuer.keys["invented"] = new_key("RS256"), "RS256"
    for _ in range(20):
        with pytest.raises(Unauthenticated):
            await tokens.verify(issuer.token("invented"))
        await tokens.verify(issuer.token())
    assert len(issuer.calls) == 2
    clock.now += COOLDOWN_SECONDS
    for _ in range(20):
        with pytest.raises(Unauthenticated):
            await tokens.verify(issuer.token("invented"))
    assert len(issuer.calls) == 4


async def test_a_new_key_counts_and_a_former_one_does_not(issuer: Issuer, clock: Clock) -> None:
    tokens = tokens_of(issuer, clock)
    await tokens.verify(issuer.token())
    issuer.listed.clear()
    issuer.add_key("second", "ES256")
    clock.now += COOLDOWN_SECONDS
    assert (await tokens.verify(issuer.token("second"))).identity == "oidc:alice"
    with pytest.raises(Unauthenticated):
        await tokens.verify(issuer.token("first"))


async def test_a_withdrawn_key_ends(issuer: Issuer, clock: Clock) -> None:
    keys = IssuerKeys(issuer.url, clock)
    tokens = OidcTokens(OidcSettings(issuer=issuer.url, audience=AUDIENCE), keys)
    token = issuer.token()
    await tokens.verify(token)
    issuer.listed.clear()
    issuer.add_key("second")
    clock.now += KEYS_SECONDS
    await tokens.verify(token)  # which begins the fetch, and does not wait for it
    if keys._refreshing is not None:
        await keys._refreshing
    with pytest.raises(Unauthenticated):
        await tokens.verify(token)


async def test_kept_keys_count_while_the_issuer_is_down(issuer: Issuer, clock: Clock) -> None:
    keys = IssuerKeys(issuer.url, clock)
    tokens = OidcTokens(OidcSettings(issuer=issuer.url, audience=AUDIENCE), keys)
    token = issuer.token()
    await tokens.verify(token)
    issuer.stop()
    for _ in range(3):
        clock.now += KEYS_SECONDS
        await tokens.verify(token)
        if keys._refreshing is not None:
            await keys._refreshing
        await tokens.verify(token)


async def test_an_issuer_that_never_answered_is_a_reason_to_try_again(issuer: Issuer, clock: Clock) -> None:
    tokens, token = tokens_of(issuer, clock), issuer.token()
    issuer.status = 503
    for _ in range(3):
        with pytest.raises(Unavailable, match="answers with 503"):
            await tokens.verify(token)
    assert len(issuer.calls) == 1
    issuer.status = 200
    clock.now += COOLDOWN_SECONDS
    await tokens.verify(token)


BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("too large", {"body": b" " * (issuer_documents.MAX_DOCUMENT_BYTES + 1)}, "more than"),
    ("no JSON", {"body": b"<html>"}, "no JSON"),
    ("no object", {"body": b"[]"}, "no JSON object"),
    ("deep", {"body": b"[" * 100_000}, "no JSON"),
    ("no keys", {"body": b'{"keys": []}'}, "no key that can be used"),
    ("many keys", {"body": json.dumps({"keys": [{}] * 101}).encode()}, "no list of up to 100 keys"),
    ("another name", {"extra": {"issuer": "https://another.example"}}, "calls itself"),
    ("keys in clear text", {"extra": {"jwks_uri": "http://192.0.2.1/keys"}}, "no https:// URL"),
    ("keys in a file", {"extra": {"jwks_uri": "file:///etc/passwd"}}, "no https:// URL"),
    ("a redirect", {"moved": True}, "answers with 302"),
]


@pytest.mark.parametrize(("what", "answers", "words"), BROKEN, ids=[what for what, _, _ in BROKEN])
async def test_an_issuer_that_answers_invalid_documents_changes_nothing(
    issuer: Issuer, clock: Clock, what: str, answers: dict[str, Any], words: str
) -> None:
    token, known, fresh = issuer.token(), tokens_of(issuer, clock), tokens_of(issuer, clock)
    await known.verify(token)
    for name, value in answers.items():
        setattr(issuer, name, value)
    with pytest.raises(Unavailable, match=words):
        await fresh.verify(token)
    clock.now += KEYS_SECONDS
    await known.verify(token)


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "http://login.example.com"},
        {"issuer": "ftp://127.0.0.1"},
        {"issuer": "https://login.example.com/?tenant=a"},
        {"issuer": "https://user@login.example.com"},
        {"audience": ""},
        {"identity_claim": ""},
        {"prefix": ""},
        {"prefix": " "},
        {"prefix": "system:"},
        {"prefix": "a\n"},
    ],
)
def test_settings_let_nobody_pose_as_another(wrong: dict[str, str]) -> None:
    OidcSettings(issuer="https://login.example.com/realms/data", audience="smq")
    with pytest.raises(ValueError, match=r"\w"):
        OidcSettings(**({"issuer": "https://login.example.com", "audience": "smq"} | wrong))


@pytest.mark.parametrize("token", ["", "smq-broker.i.f", "x" * 8000, "a.b.c", "..", segment({}) * 3])
def test_tokens_of_others_are_not_recognised(token: str) -> None:
    settings = OidcSettings(issuer="https://login.example.com", audience="smq")
    assert not OidcTokens(settings, IssuerKeys(settings.issuer, Clock())).recognises(token)
