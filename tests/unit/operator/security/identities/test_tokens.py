from __future__ import annotations

import json
from pathlib import Path

import pytest

from smq_core.errors import InvalidRequest, Unauthenticated
from smq_operator.security.callers import Caller
from smq_operator.security.identities.tokens import (
    MAX_TOKENS,
    BrokerTokens,
    ReleaseTokens,
    StaticTokens,
    parse_tokens,
    token_digest,
)

ENTRY = {"identity": "spark", "sha256": token_digest("t1").hex(), "groups": ["analysts"]}
KEY = b"k" * 32


def write(path: Path, *entries: dict[str, object]) -> Path:
    path.write_text(json.dumps({"tokens": list(entries)}))
    return path


async def test_a_token_of_the_file_says_who_has_it(tmp_path: Path) -> None:
    tokens = StaticTokens(write(tmp_path / "tokens.yaml", {**ENTRY, "identity": "x", "sha256": "00" * 32}, ENTRY))
    assert await tokens.verify("t1") == Caller(identity="spark", groups=("analysts",), method="StaticToken")
    for wrong in ("t2", "", ENTRY["sha256"]):
        with pytest.raises(Unauthenticated):
            await tokens.verify(str(wrong))


async def test_tokens_change_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    tokens = StaticTokens(write(path, ENTRY))
    write(path, {**ENTRY, "sha256": token_digest("another").hex()})
    assert (await tokens.verify("another")).identity == "spark"
    with pytest.raises(Unauthenticated):
        await tokens.verify("t1")


@pytest.mark.parametrize(
    "document, named",
    [
        (None, "tokens"),
        ({"tokens": {}}, "tokens"),
        ({"tokens": [], "more": 1}, "tokens"),
        ({"tokens": ["x"]}, r"tokens\[0\]"),
        ({"tokens": [ENTRY, {**ENTRY, "token": "plain"}]}, r"tokens\[1\]"),
        ({"tokens": [{**ENTRY, "sha256": "t1"}]}, "sha256"),
        ({"tokens": [{**ENTRY, "sha256": "00"}]}, "sha256"),
        ({"tokens": [{**ENTRY, "identity": ""}]}, "identity"),
        ({"tokens": [{**ENTRY, "identity": "plain\n"}]}, "identity"),
        ({"tokens": [{**ENTRY, "identity": "plain" * 60}]}, "identity"),
        ({"tokens": [{**ENTRY, "groups": "analysts"}]}, "groups"),
        ({"tokens": [ENTRY] * (MAX_TOKENS + 1)}, "at most"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_without_its_values(document: object, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named) as caught:
        parse_tokens(document)
    assert "plain" not in caught.value.message and "t1" not in caught.value.message


async def test_each_leader_with_the_key_knows_the_token_of_a_broker() -> None:
    token = BrokerTokens(KEY, lambda _: False).issue("i.1")
    caller = await BrokerTokens(KEY, lambda _: False).verify(token)
    assert (caller.incarnation, caller.method) == ("i.1", "BrokerToken")
    _, _, mac = token.rpartition(".")
    for wrong in (f"i.2.{mac}", f"i.1.{mac[:-1]}", "i.1.", "", "i.1.é"):
        with pytest.raises(Unauthenticated):
            await BrokerTokens(KEY, lambda _: False).verify(f"smq-broker.{wrong}")
    with pytest.raises(Unauthenticated):
        await BrokerTokens(b"x" * 32, lambda _: False).verify(token)


async def test_the_token_of_a_broker_ends_with_it() -> None:
    tokens = BrokerTokens(KEY, lambda incarnation: incarnation == "i1")
    with pytest.raises(Unauthenticated, match="has ended"):
        await tokens.verify(tokens.issue("i1"))
    assert (await tokens.verify(tokens.issue("i2"))).incarnation == "i2"


async def test_tokens_of_brokers_and_of_others_have_their_own_verifiers(tmp_path: Path) -> None:
    brokers = BrokerTokens(KEY, lambda _: False)
    tokens = ReleaseTokens([brokers], StaticTokens(write(tmp_path / "tokens.yaml", ENTRY)))
    assert (await tokens.verify(brokers.issue("i1"))).incarnation == "i1"
    assert (await tokens.verify("t1")).incarnation == ""
