"""Whose a token is: what the leader answers, kept for a minute at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from smq_broker.kafka.executor import Blocking
from smq_broker.leader_client.callers_of_kafka import CallersOfKafka
from smq_core.errors import Unauthenticated
from smq_core.model.entities import SECOND

# How long an answer counts: as at the leader itself.
KEPT_SECONDS = 60.0
# Programs connect to a broker by several connections at once, and after each split.
MAX_KEPT = 1_000


class Identity(NamedTuple):
    """``expires_at`` is when its token expires, in seconds since the Unix epoch; 0 if it does not."""

    name: str
    expires_at: float


class Identities:
    """Belongs to the event loop. ``clock`` is in seconds since the Unix epoch."""

    def __init__(self, callers: CallersOfKafka, blocking: Blocking, clock: Callable[[], float] = time.time) -> None:
        self._callers = callers
        self._blocking = blocking
        self._clock = clock
        self._kept: dict[bytes, tuple[float, Identity]] = {}
        """By the hash of the token, with the time of the answer."""

    async def of(self, token: str) -> Identity:
        """Raises Unauthenticated, Unavailable."""
        digest = sha256(token.encode()).digest()
        at, known = self._kept.get(digest, (0.0, None))
        if known is None or not 0 <= self._clock() - at < KEPT_SECONDS:
            requested_at = self._clock()
            reply = await self._blocking.call(lambda: self._callers.who_am_i(token))
            known = Identity(reply.identity, reply.expires_at / SECOND)
            self._kept.pop(digest, None)
            while len(self._kept) >= MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[digest] = requested_at, known
        if not known.name or (known.expires_at and known.expires_at <= self._clock()):
            raise Unauthenticated("this token has expired: get a new one")
        return known
