"""Fetch: messages of partitions that this broker leads.

Every request is a full one: there are no fetch sessions. Clients take the session number 0 for that.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.admission import Admission
from smq_broker.kafka.apis.error_codes import Refused, error_code_of
from smq_broker.kafka.apis.leaders import Leaders
from smq_broker.kafka.executor import Blocking, LoopCalls
from smq_broker.kafka.partitions.histories import Histories
from smq_broker.kafka.partitions.rows import record_batch
from smq_broker.kafka.partitions.tail_reader import TailReader, Watches, encode_entries
from smq_broker.kafka.protocol.fetch_response import FetchedPartition, FetchedTopic, FetchResponse
from smq_broker.kafka.protocol.messages import RequestContext
from smq_broker.kafka.records.batch_header import count_records
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import SmqError
from smq_core.model.entities import number_of

# A response has at most this many bytes of records, except for a single larger message.
MAX_RESPONSE_BYTES = 50 * 1024 * 1024


UNKNOWN_ID = uuid.UUID(int=0)


@dataclass(slots=True, kw_only=True)
class _Wanted:
    """A partition of a request, and what was found last. ``hosted`` is None after an error."""

    name: str | None
    topic_id: uuid.UUID | None
    denied: ErrorCode
    request: Any
    found: FetchedPartition
    hosted: HostedSegment | None = None

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.found.records))


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

    async def fetch(self, request: Any, context: RequestContext) -> FetchResponse:
        """Answers as soon as there is enough to read, or an error to report; at the latest after the request's wait. A
        client above its quota waits before that.
        """
        loop = asyncio.get_running_loop()
        admission = Admission(context.access)
        topics = [await self._wanted(topic, admission) for topic in request.topics]
        every = list(chain.from_iterable(topics))
        deadline = loop.time() + request.max_wait.total_seconds()
        changed = asyncio.Event()
        watches = Watches(self._tails, lambda: self._calls.post(changed.set))
        limit = left = min(request.max_bytes, MAX_RESPONSE_BYTES)
        again: Iterable[_Wanted] = every
        try:
            while True:
                for it in again:
                    left += it.size_bytes
                    it.hosted, it.found = await self._read(it, max(0, left), watches)
                    left -= it.size_bytes
                has_error = any(it.found.error_code for it in every)
                if limit - left >= request.min_bytes or has_error or loop.time() >= deadline:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await changed.wait()
                changed.clear()
                again = _changed(every, watches.take_progress())
        finally:
            watches.end()
        fetched = [_fetched(*it) for it in zip(request.topics, topics, strict=True)]
        for topic in fetched:
            if admission.is_limited(topic.name):
                admission.use(topic.name, *_sent(topic))
        return FetchResponse(topics=fetched, throttle_ms=admission.throttle_time() // timedelta(milliseconds=1))

    async def _wanted(self, topic: Any, admission: Admission) -> list[_Wanted]:
        topic_id = getattr(topic, "topic_id", None)
        name = await self._leaders.name_of(getattr(topic, "topic", ""), topic_id)
        denied = await admission.admit(name)
        return [
            _Wanted(
                name=name,
                topic_id=topic_id,
                denied=denied,
                request=it,
                found=FetchedPartition(partition=it.partition),
            )
            for it in topic.partitions
        ]

    async def _read(
        self, wanted: _Wanted, left: int, watches: Watches
    ) -> tuple[HostedSegment | None, FetchedPartition]:
        try:
            if wanted.denied is not ErrorCode.none:
                raise Refused(wanted.denied)
            return await self._read_partition(wanted, left, watches)
        except Refused as refused:
            code = refused.code
        except SmqError as error:
            code = error_code_of(error)
        return None, FetchedPartition(partition=wanted.request.partition, error_code=code.value)

    async def _read_partition(
        self, wanted: _Wanted, left: int, watches: Watches
    ) -> tuple[HostedSegment, FetchedPartition]:
        partition, offset = wanted.request.partition, wanted.request.fetch_offset
        hosted = await self._primary(wanted, watches)
        max_bytes = min(left, wanted.request.partition_max_bytes)
        found = self._tails.read(hosted, partition, offset, max_bytes)
        if found is None:  # it is being sealed, or does not know yet where its partitions begin
            raise Refused(ErrorCode.not_leader_or_follower)
        if offset > found.state.end or offset < 0:
            raise Refused(ErrorCode.offset_out_of_range)
        records = bytearray()
        if left and found.is_in_filer:
            records = await self._blocking.call(lambda: self._read_old(hosted, partition, offset, max_bytes))
        elif left and found.entries:
            records = encode_entries(hosted, partition, offset, found.entries)
        return hosted, FetchedPartition(
            partition=partition,
            high_watermark=found.state.high_watermark,
            last_stable_offset=found.state.high_watermark,
            records=(records,) if records else (),
        )

    async def _primary(self, wanted: _Wanted, watches: Watches) -> HostedSegment:
        hosted = await self._leaders.primary(wanted.name, wanted.request.partition, wanted.topic_id)
        watches.begin(hosted)  # before it is read, so that no change is missed
        if not hosted.machine.config.counts_partitions:
            raise Refused(ErrorCode.unsupported_for_message_format)
        epoch = getattr(wanted.request, "current_leader_epoch", -1)
        if epoch >= 0 and epoch != number_of(hosted.name):
            is_older = epoch < number_of(hosted.name)
            raise Refused(ErrorCode.fenced_leader_epoch if is_older else ErrorCode.unknown_leader_epoch)
        return hosted

    def _read_old(self, hosted: HostedSegment, partition: int, offset: int, max_bytes: int) -> bytearray:
        stored = self._histories.of(hosted.topic)
        if offset < stored.history.log_start(partition):
            raise Refused(ErrorCode.offset_out_of_range)
        found = stored.reader.read_partition(partition, offset, max_bytes)
        return bytearray() if found is None else record_batch(found.rows, found.first_offset, found.epoch)


def _sent(topic: FetchedTopic) -> tuple[int, int]:
    """How many bytes and messages a response has of this topic."""
    parts = [part for it in topic.partitions for part in it.records]
    return sum(map(len, parts)), sum(map(count_records, parts))


def _changed(every: Iterable[_Wanted], progress: Mapping[HostedSegment, set[int] | None]) -> list[_Wanted]:
    """Those that may have more to read now."""
    found = []
    for it in every:
        if it.hosted is not None and it.hosted in progress:
            partitions = progress[it.hosted]
            if partitions is None or it.request.partition in partitions:
                found.append(it)
    return found


def _fetched(topic: Any, partitions: Sequence[_Wanted]) -> FetchedTopic:
    name = partitions[0].name if partitions else None
    return FetchedTopic(
        name=name or "",
        topic_id=getattr(topic, "topic_id", None) or UNKNOWN_ID,
        partitions=[it.found for it in partitions],
    )
