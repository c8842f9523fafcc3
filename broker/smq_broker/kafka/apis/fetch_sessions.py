"""Fetch sessions: what a client fetches again and again, so that its requests and responses have only what has changed.

A client that begins a session sends all its partitions once. Its next requests name those that are new, gone, or
fetched from another offset, and each has the next epoch (KIP-227). A request without a session is one of a session that
ends with it.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode

from smq_broker.kafka.partitions.tail_reader import Watches
from smq_broker.kafka.protocol.fetch_response import FetchedPartition
from smq_broker.segments.hosted_segment import HostedSegment
from smq_storage.thread_runtime import monotonic

# Epochs of requests that begin a session, and that have none.
BEGIN, NONE = 0, -1
NO_SESSION = 0
MAX_EPOCH = 2**31 - 1
# Of all sessions together. A partition takes about a kilobyte of memory.
MAX_SESSION_PARTITIONS = 50_000
# A session that was not used for that long ends. Clients send a request at least every half second.
IDLE_SECONDS = 120.0

# A topic by its id, or by its name in versions without ids.
TopicKey: TypeAlias = uuid.UUID | str


class InvalidSession(Exception):
    """The client has to begin another session."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True, eq=False)
class WantedTopic:
    """``name`` is None if nobody has its id. ``denied`` is why the client may not read it now.

    ``partitions`` are those of the session, by number, so that nobody looks for them among all others.
    """

    key: TopicKey
    name: str | None
    denied: ErrorCode = ErrorCode.none
    partitions: dict[int, WantedPartition] = field(default_factory=dict, repr=False)

    @property
    def id(self) -> uuid.UUID | None:
        return self.key if isinstance(self.key, uuid.UUID) else None


@dataclass(slots=True, kw_only=True, eq=False)
class WantedPartition:
    """``request`` says from where on it is read. ``hosted`` is the segment that was read last; None after an error.

    ``read_to`` is the offset after the messages in ``found``: a request that waits for more adds to them.
    """

    topic: WantedTopic
    request: Any
    found: FetchedPartition
    hosted: HostedSegment | None = None
    read_to: int = 0
    sent_high_watermark: int = -1
    """In the last response that had the partition."""

    def __post_init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forgets the messages that were read."""
        self.found = FetchedPartition(partition=self.request.partition, high_watermark=self.found.high_watermark)
        self.read_to = self.request.fetch_offset

    @property
    def key(self) -> tuple[TopicKey, int]:
        return self.topic.key, self.request.partition

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.found.records))

    @property
    def has_news(self) -> bool:
        found = self.found
        return bool(found.records or found.error_code or found.high_watermark != self.sent_high_watermark)

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing to read until the partition changes."""
        found = self.found
        return not found.error_code and not found.records and self.request.fetch_offset >= found.high_watermark


@dataclass(slots=True, kw_only=True)
class FetchSession:
    """``due`` are the partitions that have to be read: there may be something, or there was an error. The last ones of
    which messages were sent come last, so that none of them starves the others.
    """

    identity: str
    watches: Watches
    id: int = NO_SESSION
    epoch: int = 1
    """Of the next request."""
    is_busy: bool = False
    is_ended: bool = False
    used_at: float = 0.0
    topics: dict[TopicKey, WantedTopic] = field(default_factory=dict)
    partitions: dict[tuple[TopicKey, int], WantedPartition] = field(default_factory=dict)
    due: dict[tuple[TopicKey, int], WantedPartition] = field(default_factory=dict)
    _has_sealed: bool = False

    def put(self, topic: WantedTopic, request: Any) -> None:
        """The client fetches this partition, from this offset on."""
        key = topic.key, request.partition
        known = self.partitions.get(key)
        sent = known.sent_high_watermark if known is not None else -1
        found = FetchedPartition(partition=request.partition)
        wanted = WantedPartition(topic=topic, request=request, found=found, sent_high_watermark=sent)
        self.partitions[key] = topic.partitions[request.partition] = wanted
        self.due[key] = wanted

    def remove(self, topic: TopicKey, partitions: Iterable[int]) -> None:
        known = self.topics.get(topic)
        if known is None:
            return
        for partition in partitions:
            known.partitions.pop(partition, None)
            self.partitions.pop((topic, partition), None)
            self.due.pop((topic, partition), None)
        if not known.partitions:
            del self.topics[topic]

    def set_denied(self, topic: WantedTopic, denied: ErrorCode) -> None:
        if denied is not topic.denied:
            topic.denied = denied
            self.due.update((it.key, it) for it in topic.partitions.values())

    def begin(self) -> list[WantedPartition]:
        """The partitions that a request reads first."""
        self.take_progress()
        for it in self.due.values():
            if it.found.records:  # the connection of the request before ended without a response
                it.begin_anew()
        return list(self.due.values())

    def take_progress(self) -> list[WantedPartition]:
        """The partitions that may have more since the last call. They are due."""
        progress = self.watches.take_progress()
        if not progress:
            return []
        self._has_sealed = self._has_sealed or None in progress.values()
        found = [
            it
            for it in self.partitions.values()
            if it.hosted is not None
            and it.hosted in progress
            and ((changed := progress[it.hosted]) is None or it.request.partition in changed)
        ]
        self.due.update((it.key, it) for it in found)
        return found

    def read(self, it: WantedPartition) -> None:
        """``it.found`` is what there is now."""
        if it.is_at_end:
            self.due.pop(it.key, None)

    def finish(self, answered: Iterable[WantedPartition]) -> None:
        """These partitions are in a response."""
        for it in answered:
            it.sent_high_watermark = it.found.high_watermark
            if it.found.records:  # there may be more, but after that of others
                self.due.pop(it.key, None)
                self.due[it.key] = it
            if not it.found.error_code:
                it.begin_anew()

        if self._has_sealed:
            self._has_sealed = False
            self.watches.keep({it.hosted for it in self.partitions.values()})

    def end(self) -> None:
        self.is_ended = True
        self.watches.end()


class FetchSessions:
    """Of all clients. Used by the listener's loop only. ``clock`` is a monotonic clock in seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._by_id: dict[int, FetchSession] = {}
        self._checked_at = clock()

    def find(self, id_: int, epoch: int, identity: str, *, uses_ids: bool) -> FetchSession:
        """The session that continues with this epoch. Raises InvalidSession."""
        if self._clock() - self._checked_at > IDLE_SECONDS / 4:
            self._end_idle()
        found = self._by_id.get(id_)
        if found is None or found.identity != identity:
            raise InvalidSession(ErrorCode.fetch_session_id_not_found)
        if found.epoch != epoch or found.is_busy:
            raise InvalidSession(ErrorCode.invalid_fetch_session_epoch)
        if any(isinstance(key, uuid.UUID) is not uses_ids for key in found.topics):
            raise InvalidSession(ErrorCode.fetch_session_topic_id_error)
        found.epoch = epoch + 1 if epoch < MAX_EPOCH else 1
        found.used_at = self._clock()
        return found

    def keep(self, session: FetchSession) -> None:
        """Gives the session an id if there is room for it. Otherwise its client sends all partitions each time."""
        self._end_idle()
        if self._partitions() + len(session.partitions) <= MAX_SESSION_PARTITIONS:
            session.id, session.used_at = self._new_id(), self._clock()
            self._by_id[session.id] = session

    def check_size(self, session: FetchSession) -> None:
        """Ends a session to which its client has added more partitions than there is room for."""
        if session.id != NO_SESSION and self._partitions() > MAX_SESSION_PARTITIONS:
            self.end(session.id, session.identity)

    def _partitions(self) -> int:
        return sum(len(it.partitions) for it in self._by_id.values())

    def end(self, id_: int, identity: str) -> None:
        found = self._by_id.get(id_)
        if found is not None and found.identity == identity:
            del self._by_id[id_]
            found.end()

    def _end_idle(self) -> None:
        """Their clients may be gone, and what they watch stays in memory."""
        self._checked_at = now = self._clock()
        for it in list(self._by_id.values()):
            if not it.is_busy and now - it.used_at > IDLE_SECONDS:
                self.end(it.id, it.identity)

    def _new_id(self) -> int:
        while (id_ := secrets.randbelow(MAX_EPOCH) + 1) in self._by_id:
            pass
        return id_
