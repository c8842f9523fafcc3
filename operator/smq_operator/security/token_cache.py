"""Keeps for a moment who had a token, so that not every call of a client costs a request to another server."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from smq_operator.security.callers import Caller, TokenVerifier
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
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()
        """By the token's digest: until when the caller counts."""
        self._lookups: dict[bytes, asyncio.Task[Caller]] = {}
        """In progress; callers with the same token share one."""

    async def verify(self, token: str) -> Caller:
        digest, now = token_digest(token), self._clock()
        known = self._known.get(digest)
        if known is not None and now < known[0]:
            return known[1]
        lookup = self._lookups.get(digest)
        if lookup is None:
            lookup = self._lookups[digest] = asyncio.ensure_future(self._look_up(token, digest))
            lookup.add_done_callback(lambda _: self._lookups.pop(digest, None))
        return await asyncio.shield(lookup)

    async def _look_up(self, token: str, digest: bytes) -> Caller:
        self._known.pop(digest, None)
        caller = await self._verifier.verify(token)
        until = self._clock() + KNOWN_SECONDS
        self._known[digest] = (min(until, caller.expires_at) if caller.expires_at else until, caller)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return caller
