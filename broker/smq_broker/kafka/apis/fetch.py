"""Fetch: messages of partitions that this broker leads.

A request without a session is the only one of a session that ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.admission import Admission
from smq_broker.kafka.apis.error_codes import Refused, error_code_of
from smq_broker.kafka.apis.fetch_sessions import (
    BEGIN,
    NO_SESSION,
    NONE,
    FetchSession,
    FetchSessions,
    InvalidSession,
    TopicKey,
    WantedPartition,
    WantedTopic,
)
from smq_broker.kafka.apis.leaders import Leaders
from smq_broker.kafka.executor import Blocking, LoopCalls
from smq_broker.kafka.partitions.histories import Histories
from smq_broker.kafka.partitions.rows import record_batch
from smq_broker.kafka.partitions.tail_reader import TailReader, Watches, encode_entries
from smq_broker.kafka.protocol.fetch_response import FetchedPartition, FetchedTopic, FetchResponse
from smq_broker.kafka.protocol.messages import FetchWait, Part, RequestContext
from smq_broker.kafka.protocol.response_writer import UNKNOWN_ID
from smq_broker.kafka.records.batch_header import count_records
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import SmqError
from smq_core.model.entities import number_of

# A response has at most this many bytes of records, except for a single larger message.
MAX_RESPONSE_BYTES = 50 * 1024 * 1024
TOPIC_IDS_FROM = 13

# How much larger rows of a topic with a schema may be as JSON.
JSON_RATIO = 4


class FetchApi:
    def __init__(
        self,
        *,
        leaders: Leaders,
        tails: TailReader,
        histories: Histories,
        blocking: Blocking,
        calls: LoopCalls,
    ) -> None:
        self._leaders = leaders
        self._tails = tails
        self._histories = histories
        self._blocking = blocking
        self._calls = calls
        self._sessions = FetchSessions()

    async def fetch(self, request: Any, context: RequestContext) -> FetchResponse:
        """Answers as soon as there is enough to read, or an error to report; at the latest after the request's wait, or
        when the next Fetch of the connection comes. A client above its quota waits before that.
        """
        wait = context.connection.begin_fetch()
        id_, epoch = getattr(request, "session_id", NO_SESSION), getattr(request, "session_epoch", NONE)
        login = context.connection.session
        identity = login.identity if login is not None else ""
        if epoch <= BEGIN:
            self._sessions.end(id_, identity)
            session = FetchSession(identity=identity, watches=Watches(self._tails))
        else:
            try:
                session = self._sessions.find(id_, epoch, identity, uses_ids=context.version >= TOPIC_IDS_FROM)
            except InvalidSession as error:
                return FetchResponse(topics=(), error_code=error.code.value)
        session.is_busy = True
        try:
            await self._update(session, request)
            if epoch == BEGIN:
                self._sessions.keep(session)
            elif epoch > BEGIN:
                self._sessions.check_size(session)
            return await self._answer(session, request, context, wait, is_full=epoch <= BEGIN)
        finally:
            session.is_busy = False
            if session.id == NO_SESSION or session.is_ended:
                session.end()

    async def _update(self, session: FetchSession, request: Any) -> None:
        """Follows what the client fetches."""
        for gone in getattr(request, "forgotten_topics_data", None) or ():
            session.remove(_key(gone), gone.partitions)
        for topic in request.topics:
            if not topic.partitions:
                continue
            key = _key(topic)
            known = session.topics.get(key)
            if known is None:
                known = session.topics[key] = WantedTopic(key, None)
            if known.name is None:
                known.name = await self._leaders.name_of(getattr(topic, "topic", ""), known.id)
            for partition in topic.partitions:
                session.put(known, partition)

    async def _answer(
        self, session: FetchSession, request: Any, context: RequestContext, wait: FetchWait, *, is_full: bool
    ) -> FetchResponse:
        loop = asyncio.get_running_loop()
        admission = Admission(context.access)
        for topic in session.topics.values():
            session.set_denied(topic, await admission.admit(topic.name))
        deadline = loop.time() + request.max_wait.total_seconds()
        session.watches.callback = lambda: self._calls.post(wait.changed.set)
        limit = left = min(request.max_bytes, MAX_RESPONSE_BYTES)
        again = session.begin()
        read: dict[WantedPartition, None] = {}
        while True:
            for it in again:
                left += it.size_bytes
                it.hosted, it.found = await self._read(it, max(0, left), session.watches)
                left -= it.size_bytes
                session.read(it)
            read.update(dict.fromkeys(again))
            has_error = any(it.found.error_code for it in again)
            if limit - left >= request.min_bytes or has_error or wait.is_over or loop.time() >= deadline:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await wait.changed.wait()
            wait.changed.clear()
            again = session.take_progress()
        answered = list(session.partitions.values()) if is_full else [it for it in read if it.has_news]
        topics = _by_topic(answered)
        session.finish(answered)
        for fetched in topics:
            if admission.is_limited(fetched.name):
                admission.use(fetched.name, *_sent(fetched))
        return FetchResponse(topics=topics, throttle_ms=admission.throttle_ms(), session_id=session.id)

    async def _read(
        self, wanted: WantedPartition, left: int, watches: Watches
    ) -> tuple[HostedSegment | None, FetchedPartition]:
        try:
            if wanted.topic.denied is not ErrorCode.none:
                raise Refused(wanted.topic.denied)
            return await self._read_partition(wanted, left, watches)
        except (Refused, SmqError) as error:
            code = error_code_of(error)
        wanted.begin_anew()
        return None, FetchedPartition(partition=wanted.request.partition, error_code=code.value)

    async def _read_partition(
        self, wanted: WantedPartition, left: int, watches: Watches
    ) -> tuple[HostedSegment, FetchedPartition]:
        """What the request has found of the partition before, and what has come since then."""
        partition = wanted.request.partition
        hosted = await self._primary(wanted, watches)
        if hosted is not wanted.hosted:
            wanted.begin_anew()
        offset, before = wanted.read_to, wanted.found.records
        max_bytes = min(left, wanted.request.partition_max_bytes) - wanted.size_bytes
        if hosted.topic.spec.schema:
            max_bytes //= JSON_RATIO
        found = self._tails.read(hosted, partition, offset, max_bytes)
        if found is None:  # it is being sealed, or does not know yet where its partitions begin
            raise Refused(ErrorCode.not_leader_or_follower)
        if offset > found.state.end or offset < 0:
            raise Refused(ErrorCode.offset_out_of_range)
        records: Part = b""
        if not left or (before and max_bytes <= 0):
            pass
        elif found.is_in_filer:
            records, wanted.read_to = await self._blocking.call(
                lambda: self._read_old(hosted, partition, offset, max_bytes)
            )
        elif found.entries:
            entries = found.entries
            encode = partial(encode_entries, hosted, partition, offset, entries)
            records = await self._blocking.call(encode) if hosted.topic.spec.schema else encode()
            wanted.read_to = entries[-1].end
        return hosted, FetchedPartition(
            partition=partition,
            high_watermark=found.state.high_watermark,
            last_stable_offset=found.state.high_watermark,
            records=(*before, records) if records else before,
        )

    async def _primary(self, wanted: WantedPartition, watches: Watches) -> HostedSegment:
        hosted = await self._leaders.primary(wanted.topic.name, wanted.request.partition, wanted.topic.id)
        watches.begin(hosted)  # before it is read, so that no change is missed
        if not hosted.machine.config.counts_partitions:
            raise Refused(ErrorCode.unsupported_for_message_format)
        epoch = getattr(wanted.request, "current_leader_epoch", -1)
        if epoch >= 0 and epoch != number_of(hosted.name):
            is_older = epoch < number_of(hosted.name)
            raise Refused(ErrorCode.fenced_leader_epoch if is_older else ErrorCode.unknown_leader_epoch)
        return hosted

    def _read_old(self, hosted: HostedSegment, partition: int, offset: int, max_bytes: int) -> tuple[Part, int]:
        """Messages as a record batch, and the offset after them."""
        stored = self._histories.of(hosted.topic)
        if offset < stored.history.log_start(partition):
            raise Refused(ErrorCode.offset_out_of_range)
        found = stored.reader.read_partition(partition, offset, max_bytes)
        if found is None:
            return b"", offset
        records = record_batch(found.rows, found.first_offset, found.epoch, hosted.topic.spec.key)
        return records, found.first_offset + found.rows.num_rows


def _sent(topic: FetchedTopic) -> tuple[int, int]:
    """How many bytes and messages a response has of this topic."""
    parts = [part for it in topic.partitions for part in it.records]
    return sum(map(len, parts)), sum(map(count_records, parts))


def _key(topic: Any) -> TopicKey:
    """Of a topic in a request. kio has None in place of an id of zeros."""
    return (topic.topic_id or UNKNOWN_ID) if hasattr(topic, "topic_id") else topic.topic


def _by_topic(partitions: Iterable[WantedPartition]) -> list[FetchedTopic]:
    found: dict[TopicKey, tuple[WantedTopic, list[FetchedPartition]]] = {}
    for it in partitions:
        found.setdefault(it.topic.key, (it.topic, []))[1].append(it.found)
    return [
        FetchedTopic(name=topic.name or "", topic_id=topic.id or UNKNOWN_ID, partitions=own)
        for topic, own in found.values()
    ]
