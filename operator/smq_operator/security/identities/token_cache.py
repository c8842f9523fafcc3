"""Keeps for a moment who had a token, so that not every call of a client has it reviewed."""

from __future__ import annotations

from collections.abc import Callable

from smq_operator.security.callers import Caller, TokenVerifier
from smq_operator.security.expiring_cache import ExpiringCache
from smq_operator.security.identities.tokens import token_digest

# The token of an account that was deleted logs in, and changes what others see, for that long.
KNOWN_SECONDS = 60.0
# And it counts for that long at what idle clients do. A grant that it gets then ends five minutes later, when a
# certificate ends that it got in its first minute.
IDLE_SECONDS = 660.0
MAX_KNOWN = 10_000


class TokenCache:
    """Remembers the callers that ``verifier`` recognises; a token that it refuses is looked up again each time.

    ``clock`` returns seconds since the Unix epoch. Use it on the event loop.
    """

    def __init__(self, verifier: TokenVerifier, clock: Callable[[], float], seconds: float = KNOWN_SECONDS) -> None:
        self._verifier = verifier
        self._clock = clock
        self._seconds = seconds
        # By the token's digest, so that no token stays in memory.
        self._known: ExpiringCache[bytes, Caller] = ExpiringCache(MAX_KNOWN, clock)

    @property
    def idle(self) -> TokenCache:
        """The same memory, for calls that may rely on older answers."""
        other = TokenCache(self._verifier, self._clock, IDLE_SECONDS)
        other._known = self._known
        return other

    async def verify(self, token: str) -> Caller:
        return await self._known.get(token_digest(token), lambda: self._verifier.verify(token), self._counts_until)

    def _counts_until(self, caller: Caller, answered_at: float) -> float:
        until = answered_at + self._seconds
        return min(until, caller.expires_at) if caller.expires_at else until
