"""Produce: appends record batches to the partitions that this broker leads."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.admission import Admission
from smq_broker.kafka.apis.error_codes import Refused, error_code_of
from smq_broker.kafka.apis.leaders import Leaders
from smq_broker.kafka.executor import Blocking, LoopCalls
from smq_broker.kafka.partitions.append import BatchAppend
from smq_broker.kafka.partitions.rows import incoming_batch
from smq_broker.kafka.protocol.messages import RequestContext
from smq_broker.kafka.protocol.produce_request import ProducedPartition, ProduceRequest
from smq_broker.kafka.protocol.produce_response import (
    AppendedPartition,
    AppendedTopic,
    ProduceResponse,
    RecordFailure,
)
from smq_broker.kafka.records.batch_header import parse_batch
from smq_broker.kafka.records.errors import InvalidRecord, RecordError, RecordsTooLarge
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import SmqError
from smq_core.model.entities import Topic
from smq_core.replica.log_entries import IncomingBatch

NS_PER_MS = 1_000_000
# Larger batches are decoded in another thread, so that others do not wait.
DECODE_IN_LOOP_BYTES = 64 * 1024
DECODE_JSON_IN_LOOP_BYTES = 4 * 1024
# So are those that have more than that many times these bytes once they are decompressed: a few kilobytes may become
# many megabytes.
DECOMPRESSED_RATIO = 2

ALL_REPLICAS, ONE_REPLICA, NO_ACK = -1, 1, 0


class _Appending(NamedTuple):
    partition: int
    append: BatchAppend
    rows: int

    async def finish(self, deadline: float) -> AppendedPartition:
        """The response, once it is known what became of the batch."""
        try:
            return AppendedPartition(self.partition, base_offset=await self.append.offset(deadline))
        except SmqError as error:
            return AppendedPartition(self.partition, error_code_of(error).value, error_message=error.message)


class ProduceApi:
    """``max_batch`` is the size of a decoded batch in bytes that is accepted."""

    def __init__(
        self,
        *,
        leaders: Leaders,
        blocking: Blocking,
        calls: LoopCalls,
        max_batch: int,
    ) -> None:
        self._leaders = leaders
        self._blocking = blocking
        self._calls = calls
        self._max_batch = max_batch
        self._unawaited: set[asyncio.Future[None]] = set()
        """Appends whose client wants no ack. The loop alone would not keep them."""

    async def produce(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
        """All batches are appended before the acks of any are awaited. The next request of a connection begins its
        appends after those of this one, so that the batches of a producer stay in order. A client above its quota waits
        before its next batch.
        """
        if request.transactional_id is not None:
            return _refuse_all(request, ErrorCode.transactional_id_authorization_failed)
        if request.acks not in (ALL_REPLICAS, ONE_REPLICA, NO_ACK):
            return _refuse_all(request, ErrorCode.invalid_required_acks)
        deadline = time.monotonic() + max(0, request.timeout_ms) / 1000
        started: list[list[_Appending | AppendedPartition]] = []
        admission = Admission(context.access)
        async with context.connection.produce_turn:
            for topic in request.topics:
                name = await self._leaders.name_of(topic.name, topic.topic_id)
                denied = await admission.admit(name)
                if denied is not ErrorCode.none:
                    started.append([AppendedPartition(it.partition, denied.value) for it in topic.partitions])
                    continue
                until = deadline + admission.waited_seconds
                own = [await self._start(name, it, until) for it in topic.partitions]
                started.append(own)
                if name is not None and admission.is_limited(name):
                    nbytes = sum(len(it.records or b"") for it in topic.partitions)
                    admission.use(name, nbytes, sum(it.rows for it in own if isinstance(it, _Appending)))
        deadline += admission.waited_seconds
        if request.acks == NO_ACK:
            for it in chain.from_iterable(started):
                if isinstance(it, _Appending):
                    self._unawaited.add(task := asyncio.ensure_future(it.append.finish(deadline)))
                    task.add_done_callback(self._unawaited.discard)
            return None
        topics = []
        for topic, own in zip(request.topics, started, strict=True):
            partitions = [await it.finish(deadline) if isinstance(it, _Appending) else it for it in own]
            topics.append(AppendedTopic(topic.name, topic.topic_id, partitions))
        return ProduceResponse(topics, admission.throttle_ms())

    async def _start(
        self, name: str | None, data: ProducedPartition, deadline: float
    ) -> _Appending | AppendedPartition:
        partition = data.partition
        try:
            hosted = await self._primary(name, partition)
            batch = await self._decode(data, hosted.topic)
            append = BatchAppend(hosted, self._calls, asyncio.get_running_loop())
            await append.append(batch, deadline)
            return _Appending(partition, append, batch.rows)
        except RecordError as error:
            failures: list[RecordFailure] = []
            if isinstance(error, InvalidRecord) and error.index is not None:
                failures.append(RecordFailure(error.index, error.message))
            return AppendedPartition(partition, error.error_code, record_errors=failures, error_message=error.message)
        except (Refused, SmqError) as error:
            return AppendedPartition(partition, error_code_of(error).value, error_message=error.message)

    async def _primary(self, name: str | None, partition: int) -> HostedSegment:
        hosted = await self._leaders.primary(name, partition)
        if not hosted.machine.config.counts_partitions:
            raise Refused(
                ErrorCode.invalid_record,
                f"topic {name} takes no batches of Kafka clients, because its partitioner is not Kafka: create one "
                "with `partitioner: Kafka`",
            )
        return hosted

    async def _decode(self, data: ProducedPartition, topic: Topic) -> IncomingBatch:
        records = data.records
        if records is None or not len(records):
            raise Refused(ErrorCode.invalid_record, "the request has no records for this partition")

        def decode(max_bytes: int) -> IncomingBatch:
            now_ms = time.time_ns() // NS_PER_MS
            return incoming_batch(
                records, parse_batch(records), data.partition, topic, now_ms=now_ms, max_bytes=max_bytes
            )

        limit = DECODE_JSON_IN_LOOP_BYTES if topic.spec.schema else DECODE_IN_LOOP_BYTES
        if len(records) <= limit:
            with suppress(RecordsTooLarge):
                return decode(min(DECOMPRESSED_RATIO * limit, self._max_batch))
        return await self._blocking.call(lambda: decode(self._max_batch))


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        [
            AppendedTopic(
                topic.name, topic.topic_id, [AppendedPartition(it.partition, code.value) for it in topic.partitions]
            )
            for topic in request.topics
        ]
    )
