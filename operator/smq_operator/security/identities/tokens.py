"""Tokens that the leader verifies by itself: those of a file, and those that it gave to its brokers."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from smq_core.errors import InvalidRequest, Unauthenticated
from smq_operator.security.callers import Caller, TokenVerifier
from smq_operator.security.watched_file import WatchedFile, from_yaml

MAX_TOKENS = 10_000
MAX_IDENTITY_LENGTH = 253
BROKER_PREFIX = "smq-broker."
# A MAC by the same key can be mistaken for that of nothing else.
_CONTEXT = b"smq-broker-token-v1:"


@dataclass(frozen=True, slots=True)
class StaticToken:
    """``digest`` is the token's SHA-256: whoever reads the file does not get in by it."""

    digest: bytes = field(repr=False)
    caller: Caller


def token_digest(token: str) -> bytes:
    """Tokens are random and long, so a plain hash keeps them; a password would need a slow one."""
    return hashlib.sha256(token.encode()).digest()


class StaticTokens:
    """The tokens of a file: a list ``tokens``, each with ``identity``, ``sha256`` and perhaps ``groups``."""

    def __init__(self, path: Path) -> None:
        self._file = WatchedFile(path, from_yaml(parse_tokens))

    async def verify(self, token: str) -> Caller:
        digest, found = token_digest(token), None
        for entry in self._file.current():  # all of them, so that the time says nothing of which one is near
            if hmac.compare_digest(entry.digest, digest):
                found = entry.caller
        if found is None:
            raise Unauthenticated(
                "this release does not know this token: it was mistyped, replaced or removed, so get the present one"
            )
        return found


class BrokerTokens:
    """A broker's token is its incarnation with a MAC by ``key``, so each leader of the release knows all of them.

    ``has_ended`` says whether the platform has proof that this incarnation has terminated.
    """

    def __init__(self, key: bytes, has_ended: Callable[[str], bool]) -> None:
        self._key = key
        self._has_ended = has_ended

    def issue(self, incarnation: str) -> str:
        return f"{BROKER_PREFIX}{incarnation}.{self._mac(incarnation)}"

    def recognises(self, token: str) -> bool:
        return token.startswith(BROKER_PREFIX)

    async def verify(self, token: str) -> Caller:
        incarnation, _, mac = token.removeprefix(BROKER_PREFIX).rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._mac(incarnation).encode()):
            raise Unauthenticated("this release did not give this broker its token: start the broker anew")
        if self._has_ended(incarnation):
            raise Unauthenticated(f"incarnation {incarnation} has ended, so its token does not count any more")
        return Caller(identity=f"broker {incarnation}", method="BrokerToken", incarnation=incarnation)

    def _mac(self, incarnation: str) -> str:
        return hmac.new(self._key, _CONTEXT + incarnation.encode(), hashlib.sha256).hexdigest()


class KindOfTokens(TokenVerifier, Protocol):
    """Tokens that can be told from others before anything is verified."""

    def recognises(self, token: str) -> bool: ...


class ReleaseTokens:
    """The first of ``kinds`` that recognises a token verifies it, and ``others`` if none does."""

    def __init__(self, kinds: Sequence[KindOfTokens], others: TokenVerifier) -> None:
        self._kinds = kinds
        self._others = others

    async def verify(self, token: str) -> Caller:
        found = next((it for it in self._kinds if it.recognises(token)), self._others)
        return await found.verify(token)


def parse_tokens(document: object) -> Sequence[StaticToken]:
    """Raises InvalidRequest. Its message names an entry by its number, because a value may be a token."""
    entries = document.get("tokens") if isinstance(document, Mapping) else None
    if not isinstance(entries, list) or not isinstance(document, Mapping) or set(document) != {"tokens"}:
        raise InvalidRequest("a file of tokens is a mapping with one list, `tokens`")
    if len(entries) > MAX_TOKENS:
        raise InvalidRequest(f"a file has {MAX_TOKENS:,} tokens at most")
    return [_token(entry, f"tokens[{number}]") for number, entry in enumerate(entries)]


def _token(entry: object, where: str) -> StaticToken:
    if not isinstance(entry, Mapping) or not set(entry) <= {"identity", "sha256", "groups"}:
        raise InvalidRequest(f"{where} is no mapping of identity, sha256 and groups")
    identity, text, groups = entry.get("identity"), entry.get("sha256"), entry.get("groups") or []
    try:
        digest = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise InvalidRequest(f"{where}.sha256 is no SHA-256 of a token in hexadecimal digits")
    if not isinstance(groups, list) or not all(isinstance(group, str) and group for group in groups):
        raise InvalidRequest(f"{where}.groups is no list of names")
    if not isinstance(identity, str) or not 0 < len(identity) <= MAX_IDENTITY_LENGTH or not identity.isprintable():
        raise InvalidRequest(
            f"{where}.identity is missing, or is not one of up to {MAX_IDENTITY_LENGTH} printable characters"
        )
    return StaticToken(digest, Caller(identity=identity, groups=tuple(groups), method="StaticToken"))
