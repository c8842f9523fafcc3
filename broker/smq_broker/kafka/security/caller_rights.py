"""What Kafka clients may do: the leader's answers, which this broker keeps and renews while they are used.

Rights to a topic are the grants that the leader signs for any client. This broker fetches them with the client's token,
because Kafka's clients present none. A right that is used is requested again at half of its life in the background, so
that nobody waits for the leader, and one that was taken away ends with its grant.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from smq_broker.access.callers import UNLIMITED_STREAM, StreamQuota
from smq_broker.access.presented_grants import PresentedGrants
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.protocol.sessions import Session
from smq_broker.leader_client.callers_of_kafka import CallersOfKafka
from smq_core.access.grants import LEADERLESS_GRACE_SECONDS
from smq_core.access.rights import Right
from smq_core.errors import PermissionDenied, Unauthenticated, Unavailable, UnknownTopic
from smq_core.model.entities import SECOND

# How long a denial counts. A client that repeats a request must not occupy the leader.
DENIED_SECONDS = 5.0
# How long it counts that a group may be used, or a namespace be listed: as for the library's groups.
GROUP_SECONDS = 150.0
# How often answers that nobody uses are forgotten.
CLEANUP_SECONDS = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _TopicAnswer:
    """``uid`` is the topic's for which grants were given; empty if there were none.

    ``is_missing``: the client may use a topic of that name, but there is none. Times are those of the event loop.
    """

    uid: str
    is_missing: bool
    refresh_at: float
    counts_until: float


@dataclass(frozen=True, slots=True)
class _YesOrNo:
    allowed: bool
    refresh_at: float
    counts_until: float


class CallerRights:
    """Belongs to the event loop. ``grants`` returns those of this broker, ``group_seconds`` is as GROUP_SECONDS.

    ``clock`` and ``leader_seen_at`` are in seconds since the Unix epoch.
    """

    def __init__(
        self,
        *,
        callers: CallersOfKafka,
        grants: Callable[[], PresentedGrants],
        blocking: Blocking,
        leader_seen_at: Callable[[], float],
        clock: Callable[[], float] = time.time,
        group_seconds: float = GROUP_SECONDS,
    ) -> None:
        self._callers = callers
        self._grants = grants
        self._blocking = blocking
        self._leader_seen_at = leader_seen_at
        self._clock = clock
        self._group_seconds = group_seconds
        self._topics: dict[tuple[str, str], _TopicAnswer] = {}
        """By identity and topic."""
        self._others: dict[tuple[str, str, str, str], _YesOrNo] = {}
        """By identity, verb, topic and group."""
        self._requests: dict[Hashable, asyncio.Task[Any]] = {}
        self._cleaned_at = 0.0

    async def has(self, session: Session, topic: str, rights: Collection[Right]) -> bool:
        """Whether the client has one of these rights to the topic (``namespace/name``), which there may not be.

        Raises Unavailable if no leader answers, and Unauthenticated if the token counts no more.
        """
        key = session.identity, topic
        known, now = self._topics.get(key), asyncio.get_running_loop().time()
        if known is not None and self._allows(session, known, rights):
            if now >= known.refresh_at:
                self._request_ahead(session, key, lambda: self._fetch_grants(session, topic))
            return True
        if known is None or now >= known.counts_until:
            known = await self._request(session, key, lambda: self._fetch_grants(session, topic))
        return known.is_missing or self._allows(session, known, rights)

    async def may(self, session: Session, verb: str, topic: str, group: str = "") -> bool:
        """Whether the client may do this, as ``CallersOfKafka.may``. Raises as ``has`` does."""
        key = session.identity, verb, topic, group
        known, now = self._others.get(key), asyncio.get_running_loop().time()
        if known is not None and now < known.counts_until:
            if now >= known.refresh_at:
                self._request_ahead(session, key, lambda: self._fetch_access(session, verb, topic, group))
            return known.allowed
        try:
            known = await self._request(session, key, lambda: self._fetch_access(session, verb, topic, group))
        except Unavailable:
            if known is None or not known.allowed or now >= known.counts_until + LEADERLESS_GRACE_SECONDS:
                raise
        return known.allowed

    def stream(self, session: Session, topic: str, right: Right) -> StreamQuota:
        """The quota of the client for a right that ``has`` has found, one for each connection. Raises QuotaExceeded."""
        key = self._topics[session.identity, topic].uid, right.value
        if not key[0]:  # the topic has just been created
            return UNLIMITED_STREAM
        found = session.streams.get(key)
        if found is None:
            found = session.streams[key] = self._grants().open_stream(session.identity, key[0], right)
        return found

    def _allows(self, session: Session, known: _TopicAnswer, rights: Iterable[Right]) -> bool:
        return known.uid != "" and self._grants().allow(
            session.identity, known.uid, rights, self._clock(), self._leader_seen_at()
        )

    async def _fetch_grants(self, session: Session, topic: str) -> _TopicAnswer:
        loop = asyncio.get_running_loop()

        def fetch() -> tuple[str, float]:
            reply = self._callers.grants(session.token, topic)
            uid = self._grants().add(session.identity, reply.grants, self._clock())
            return uid, reply.expires_at / SECOND

        uid, is_missing, lives_seconds = "", False, DENIED_SECONDS
        try:
            uid, expires_at = await self._blocking.call(fetch)
            lives_seconds = max(0.0, expires_at - self._clock())
        except PermissionDenied:
            pass
        except UnknownTopic:
            is_missing = True
        now = loop.time()
        counts_until = now + min(lives_seconds, DENIED_SECONDS)
        answer = _TopicAnswer(uid, is_missing, now + lives_seconds / 2, counts_until)
        self._topics[session.identity, topic] = answer
        return answer

    async def _fetch_access(self, session: Session, verb: str, topic: str, group: str) -> _YesOrNo:
        allowed = await self._blocking.call(lambda: self._callers.may(session.token, verb, topic, group))
        now = asyncio.get_running_loop().time()
        life = self._group_seconds if allowed else DENIED_SECONDS
        answer = _YesOrNo(allowed, now + life / 2, now + life)
        self._others[session.identity, verb, topic, group] = answer
        return answer

    async def _request(self, session: Session, key: Hashable, fetch: Callable[[], Awaitable[T]]) -> T:
        """What ``fetch`` finds, once for all requests that wait for it with the same token."""
        self._forget_unused()
        shared = session.token, key
        task = self._requests.get(shared)
        if task is None:
            task = self._requests[shared] = asyncio.ensure_future(self._fetch(session, fetch))
            task.add_done_callback(lambda done: self._end_request(shared, done))
        found: T = await asyncio.shield(task)
        return found

    async def _fetch(self, session: Session, fetch: Callable[[], Awaitable[T]]) -> T:
        try:
            return await fetch()
        except Unauthenticated as error:
            session.ended_because = f"the leader does not take the token of {session.identity} any more: {error}"
            raise

    def _request_ahead(self, session: Session, key: Hashable, fetch: Callable[[], Awaitable[object]]) -> None:
        """In the background. What fails is repeated by the next request."""
        if (session.token, key) not in self._requests:
            asyncio.ensure_future(self._request(session, key, fetch)).add_done_callback(_retrieve)

    def _end_request(self, shared: Hashable, task: asyncio.Task[Any]) -> None:
        self._requests.pop(shared, None)
        _retrieve(task)

    def _forget_unused(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._cleaned_at < CLEANUP_SECONDS:
            return
        self._cleaned_at = now
        # Nothing counts any more that was to be renewed before that.
        oldest = now - LEADERLESS_GRACE_SECONDS - self._group_seconds
        self._topics = {key: it for key, it in self._topics.items() if it.refresh_at > oldest}
        self._others = {key: it for key, it in self._others.items() if it.refresh_at > oldest}


def _retrieve(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # whoever waits has it too
