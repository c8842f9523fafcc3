"""The public keys of an issuer, by which it signs its tokens. They are fetched when they are needed, and kept.

Sources: OpenID Connect Discovery 1.0, and JSON Web Key (RFC 7517).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from smq_core.errors import SmqError, Unauthenticated, Unavailable
from smq_operator.security.identities.oidc.issuer_documents import fetch_document

log = structlog.get_logger(__name__)

# A key that the issuer no longer has counts for that long at most, while the issuer answers.
KEYS_SECONDS = 600.0
# Between two fetches. Whoever sends tokens with invented keys does not make the leader fetch each time.
COOLDOWN_SECONDS = 30.0
MAX_KEYS = 100
MIN_RSA_BITS = 2048
# By the type of a key that does not name its algorithm. There is none with a shared secret.
ALGORITHMS: Mapping[str, Sequence[str]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A token by this key has one of these algorithms."""

    key: Any
    algorithms: Sequence[str]


class IssuerKeys:
    """``clock`` returns seconds of a clock that only goes forward. Use it on the event loop."""

    def __init__(
        self,
        issuer: str,
        clock: Callable[[], float],
        fetch: Callable[[str], Mapping[str, Any]] = fetch_document,
    ) -> None:
        self._issuer = issuer
        self._clock = clock
        self._fetch = fetch
        self._keys: Mapping[str, IssuerKey] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._problem = ""
        self._refreshing: asyncio.Task[None] | None = None

    async def find(self, key_id: str) -> IssuerKey:
        """The key with this id. Raises Unauthenticated if there is none; Unavailable if the issuer never answered.

        One that is known counts while the keys are fetched anew; others wait for that.
        """
        now, is_known = self._clock(), key_id in self._keys
        is_due = not is_known or now - self._fetched_at >= KEYS_SECONDS
        if is_due and self._refreshing is None and now - self._tried_at >= COOLDOWN_SECONDS:
            self._refreshing = asyncio.create_task(self._refresh())
        if not is_known and self._refreshing is not None:
            await asyncio.shield(self._refreshing)
        if key_id in self._keys:
            return self._keys[key_id]
        if not self._keys:
            raise Unavailable(f"the keys of the issuer {self._issuer} cannot be fetched now: {self._problem}")
        raise Unauthenticated(f"this token is signed by a key that the issuer {self._issuer} does not have")

    async def _refresh(self) -> None:
        """Keeps the former keys while the issuer does not answer."""
        self._tried_at = self._clock()
        try:
            found = await asyncio.to_thread(self._load)
        except SmqError as error:
            self._problem = error.message
            log.warning("oidc.issuer_unavailable", issuer=self._issuer, message=error.message, keys=len(self._keys))
        else:
            log.info("oidc.keys_fetched", issuer=self._issuer, keys=len(found))
            self._keys, self._fetched_at = found, self._clock()
        finally:
            self._refreshing = None

    def _load(self) -> Mapping[str, IssuerKey]:
        described = self._fetch(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        if described.get("issuer") != self._issuer:
            raise Unavailable(f"the issuer calls itself {str(described.get('issuer'))[:200]!r}, not {self._issuer!r}")
        listed = self._fetch(str(described.get("jwks_uri"))).get("keys")
        if not isinstance(listed, list) or len(listed) > MAX_KEYS:
            raise Unavailable(f"its jwks_uri has no list of up to {MAX_KEYS} keys")
        found = {str(it.get("kid", "")): key for it in listed if isinstance(it, Mapping) and (key := _key(it))}
        if not found:
            raise Unavailable("it has no key that can be used")
        return found


def _key(described: Mapping[str, Any]) -> IssuerKey | None:
    """None if it is no public key for signatures, or too weak a one."""
    kind = described.get("kty")
    algorithms = ALGORITHMS.get(kind) if isinstance(kind, str) else None
    if algorithms is None or described.get("use", "sig") != "sig":
        return None
    try:
        parsed = PyJWK(dict(described))
    except (PyJWTError, ValueError, TypeError):
        return None
    if isinstance(parsed.key, rsa.RSAPublicKey) and parsed.key.key_size < MIN_RSA_BITS:
        return None
    named = [it for it in algorithms if it == described.get("alg")]
    if "alg" in described and not named:
        return None
    return IssuerKey(parsed.key, named or algorithms)
