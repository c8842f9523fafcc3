"""Keeps for a moment who had a token, so that not every call of a client has it reviewed."""

from __future__ import annotations

from collections.abc import Callable

from smq_operator.security.callers import Caller, TokenVerifier
from smq_operator.security.expiring_cache import ExpiringCache
from smq_operator.security.tokens import token_digest

# The token of an account that was deleted counts for that long.
KNOWN_SECONDS = 60.0
MAX_KNOWN = 10_000


class TokenCache:
    """Remembers the callers that ``verifier`` recognises; a token that it refuses is looked up again each time.

    ``clock`` returns seconds since the Unix epoch. Use it on the event loop.
    """

    def __init__(self, verifier: TokenVerifier, clock: Callable[[], float]) -> None:
        self._verifier = verifier
        # By the token's digest, so that no token stays in memory.
        self._known: ExpiringCache[bytes, Caller] = ExpiringCache(MAX_KNOWN, clock, _counts_until)

    async def verify(self, token: str) -> Caller:
        return await self._known.get(token_digest(token), lambda: self._verifier.verify(token))


def _counts_until(caller: Caller, now: float) -> float:
    until = now + KNOWN_SECONDS
    return min(until, caller.expires_at) if caller.expires_at else until
