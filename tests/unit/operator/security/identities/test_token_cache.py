from __future__ import annotations

import asyncio

import pytest

from smq_core.errors import Unauthenticated
from smq_operator.security.callers import Caller
from smq_operator.security.identities import token_cache
from smq_operator.security.identities.token_cache import KNOWN_SECONDS, TokenCache


class Verifier:
    def __init__(self) -> None:
        self.calls = 0
        self.accepts = True

    async def verify(self, token: str) -> Caller:
        self.calls += 1
        await asyncio.sleep(0)
        if not self.accepts or token == "wrong":
            raise Unauthenticated("no")
        return Caller(identity=token, method="x", expires_at=30.0 if token == "short" else 0.0)


@pytest.fixture
def verifier() -> Verifier:
    return Verifier()


async def test_a_token_is_verified_once_in_a_while(verifier: Verifier) -> None:
    now = [0.0]
    cache = TokenCache(verifier, lambda: now[0])
    callers = await asyncio.gather(*(cache.verify("alice") for _ in range(5)))
    assert {it.identity for it in callers} == {"alice"} and verifier.calls == 1
    now[0] = KNOWN_SECONDS - 1
    await cache.verify("alice")
    assert verifier.calls == 1
    now[0], verifier.accepts = KNOWN_SECONDS, False
    with pytest.raises(Unauthenticated):
        await cache.verify("alice")


async def test_a_token_does_not_count_after_its_end(verifier: Verifier) -> None:
    now = [0.0]
    cache = TokenCache(verifier, lambda: now[0])
    await cache.verify("short")
    now[0], verifier.accepts = 30.0, False
    with pytest.raises(Unauthenticated):
        await cache.verify("short")


async def test_a_wrong_token_is_looked_up_again(verifier: Verifier) -> None:
    cache = TokenCache(verifier, lambda: 0.0)
    verifier.accepts = False
    with pytest.raises(Unauthenticated):
        await cache.verify("alice")
    verifier.accepts = True
    assert (await cache.verify("alice")).identity == "alice"


async def test_the_memory_is_bounded_and_has_no_token(verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "MAX_KNOWN", 2)
    cache = TokenCache(verifier, lambda: 0.0)
    for name in ("a-token", "b-token", "c-token"):
        await cache.verify(name)
    assert len(cache._known) == 2
    assert not any(b"token" in key for key in cache._known._known)
