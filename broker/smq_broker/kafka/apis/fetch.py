"""Fetch: messages of partitions that this broker leads.

Every request is a full one: there are no fetch sessions. Clients take the session number 0 for that.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
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


@dataclass(slots=True)
class _Progress:
    """Of one pass over the partitions of a request. ``left`` is how many bytes of records the response may get yet."""

    left: int
    has_error: bool = False


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
        names = [
            await self._leaders.name_of(getattr(topic, "topic", ""), getattr(topic, "topic_id", None))
            for topic in request.topics
        ]
        wanted = [(name, await admission.admit(name)) for name in names]
        deadline = loop.time() + request.max_wait.total_seconds()
        changed = asyncio.Event()
        watches = Watches(lambda: self._calls.post(changed.set))
        limit = min(request.max_bytes, MAX_RESPONSE_BYTES)
        try:
            while True:
                changed.clear()
                progress = _Progress(limit)
                topics = [
                    FetchedTopic(
                        name=name or "",
                        topic_id=getattr(topic, "topic_id", None) or UNKNOWN_ID,
                        partitions=[await self._read(name, denied, it, progress, watches) for it in topic.partitions],
                    )
                    for (name, denied), topic in zip(wanted, request.topics, strict=True)
                ]
                left_seconds = deadline - loop.time()
                if limit - progress.left >= request.min_bytes or progress.has_error or left_seconds <= 0:
                    for it in topics:
                        if admission.is_limited(it.name):
                            admission.use(it.name, *_sent(it))
                    throttle_ms = admission.throttle_time() // timedelta(milliseconds=1)
                    return FetchResponse(topics=topics, throttle_ms=throttle_ms)
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_seconds):
                        await changed.wait()
        finally:
            watches.end()

    async def _read(
        self, name: str | None, denied: ErrorCode, wanted: Any, progress: _Progress, watches: Watches
    ) -> FetchedPartition:
        try:
            if denied is not ErrorCode.none:
                raise Refused(denied)
            found = await self._read_partition(name, wanted, max(0, progress.left), watches)
        except Refused as refused:
            found = FetchedPartition(partition=wanted.partition, error_code=refused.code.value)
        except SmqError as error:
            found = FetchedPartition(partition=wanted.partition, error_code=error_code_of(error).value)
        progress.left -= sum(map(len, found.records))
        progress.has_error = progress.has_error or found.error_code != ErrorCode.none.value
        return found

    async def _read_partition(self, name: str | None, wanted: Any, left: int, watches: Watches) -> FetchedPartition:
        partition, offset = wanted.partition, wanted.fetch_offset
        hosted = await self._primary(name, partition, getattr(wanted, "current_leader_epoch", -1), watches)
        max_bytes = min(left, wanted.partition_max_bytes)
        found = self._tails.read(hosted, partition, offset, max_bytes)
        if found is None:  # it is being sealed, or does not know yet where its partitions begin
            raise Refused(ErrorCode.not_leader_or_follower)
        if offset > found.state.end or offset < 0:
            raise Refused(ErrorCode.offset_out_of_range)
        records = bytearray()
        if left and found.is_in_filer:
            records = await self._blocking.call(lambda: self._read_old(hosted, partition, offset, max_bytes))
        elif left:
            records = encode_entries(hosted, partition, offset, found.entries)
        return FetchedPartition(
            partition=partition,
            high_watermark=found.state.high_watermark,
            last_stable_offset=found.state.high_watermark,
            records=(records,) if records else (),
        )

    async def _primary(self, name: str | None, partition: int, epoch: int, watches: Watches) -> HostedSegment:
        hosted = await self._leaders.primary(name, partition)
        watches.begin(hosted)  # before it is read, so that no change is missed
        if not hosted.machine.config.counts_partitions:
            raise Refused(ErrorCode.unsupported_for_message_format)
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
