"""Produce: appends record batches to the partitions that this broker leads."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.admission import Admission
from smq_broker.kafka.apis.error_codes import NO_THROTTLE, Refused, error_code_of
from smq_broker.kafka.apis.leaders import Leaders
from smq_broker.kafka.executor import Blocking, LoopCalls
from smq_broker.kafka.partitions.append import BatchAppend
from smq_broker.kafka.partitions.rows import incoming_batch
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_broker.kafka.protocol.produce_request import ProducedPartition, ProduceRequest
from smq_broker.kafka.records.batch_header import parse_batch
from smq_broker.kafka.records.decoding import decode_records
from smq_broker.kafka.records.errors import InvalidRecord, RecordError
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import SmqError
from smq_core.replica.log_entries import IncomingBatch

NS_PER_MS = 1_000_000
# Larger batches are decoded in another thread, so that others do not wait.
DECODE_IN_LOOP_BYTES = 64 * 1024
# Of a partition's response.
_Fields: TypeAlias = dict[str, Any]

ALL_REPLICAS, ONE_REPLICA, NO_ACK = -1, 1, 0


@dataclass(frozen=True, slots=True)
class _Appended:
    append: BatchAppend
    rows: int


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

    async def produce(self, request: ProduceRequest, context: RequestContext) -> ResponseBody:
        """All batches are appended before the acks of any are awaited. The next request of a connection begins its
        appends after those of this one, so that the batches of a producer stay in order. A client above its quota waits
        before its next batch.
        """
        if request.transactional_id is not None:
            return self._refuse_all(request, ErrorCode.transactional_id_authorization_failed)
        if request.acks not in (ALL_REPLICAS, ONE_REPLICA, NO_ACK):
            return self._refuse_all(request, ErrorCode.invalid_required_acks)
        deadline = time.monotonic() + max(0, request.timeout_ms) / 1000
        started: list[list[tuple[int, _Appended | _Fields]]] = []
        admission = Admission(context.access)
        async with context.connection.produce_turn:
            for topic in request.topics:
                name = await self._leaders.name_of(topic.name, topic.topic_id)
                denied = await admission.admit(name)
                if denied is not ErrorCode.none:
                    started.append([(it.partition, {"error_code": denied}) for it in topic.partitions])
                    continue
                until = deadline + admission.waited_seconds
                own = [(it.partition, await self._start(name, it, until)) for it in topic.partitions]
                started.append(own)
                if name is not None and admission.is_limited(name):
                    nbytes = sum(len(it.records or b"") for it in topic.partitions)
                    admission.use(name, nbytes, sum(it.rows for _, it in own if isinstance(it, _Appended)))
        deadline += admission.waited_seconds
        if request.acks == NO_ACK:
            for _, it in chain.from_iterable(started):
                if isinstance(it, _Appended):
                    self._unawaited.add(task := asyncio.ensure_future(it.append.finish(deadline)))
                    task.add_done_callback(self._unawaited.discard)
            return None
        responses = []
        for topic, partitions in zip(request.topics, started, strict=True):
            results = [await self._finish(index, it, deadline) for index, it in partitions]
            responses.append({"name": topic.name, "topic_id": topic.topic_id, "partition_responses": results})
        return {"throttle_time": admission.throttle_time(), "responses": responses}

    async def _start(self, name: str | None, data: ProducedPartition, deadline: float) -> _Appended | _Fields:
        try:
            hosted = await self._primary(name, data.partition)
            batch = await self._decode(data)
            append = BatchAppend(hosted, self._calls, asyncio.get_running_loop())
            await append.append(batch, deadline)
            return _Appended(append, batch.rows)
        except RecordError as error:
            return _refused_records(error)
        except (Refused, SmqError) as error:
            return {"error_code": error_code_of(error), "error_message": error.message}

    async def _primary(self, name: str | None, partition: int) -> HostedSegment:
        hosted = await self._leaders.primary(name, partition)
        if not hosted.machine.config.counts_partitions:
            raise Refused(
                ErrorCode.invalid_record,
                f"topic {name} takes no batches of Kafka clients, because its partitioner is not Kafka: create one "
                "with `partitioner: Kafka`",
            )
        if not hosted.wire.takes_small_batches:
            raise Refused(
                ErrorCode.invalid_record,
                f"topic {name} has a schema, and Kafka clients cannot write to such topics yet: use one without",
            )
        return hosted

    async def _decode(self, data: ProducedPartition) -> IncomingBatch:
        records = data.records
        if records is None or not len(records):
            raise Refused(ErrorCode.invalid_record, "the request has no records for this partition")

        def decode() -> IncomingBatch:
            header = parse_batch(records)
            return incoming_batch(
                header, decode_records(records, header, self._max_batch), data.partition, time.time_ns() // NS_PER_MS
            )

        return decode() if len(records) <= DECODE_IN_LOOP_BYTES else await self._blocking.call(decode)

    async def _finish(self, index: int, started: _Appended | _Fields, deadline: float) -> _Fields:
        result: _Fields = {"index": index, "base_offset": -1, "record_errors": ()}
        if not isinstance(started, _Appended):
            return result | started
        try:
            return result | {"error_code": ErrorCode.none, "base_offset": await started.append.offset(deadline)}
        except SmqError as error:
            return result | {"error_code": error_code_of(error), "error_message": error.message}

    @staticmethod
    def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ResponseBody:
        refused = {"error_code": code, "base_offset": -1, "record_errors": ()}
        return {
            "throttle_time": NO_THROTTLE,
            "responses": [
                {
                    "name": topic.name,
                    "topic_id": topic.topic_id,
                    "partition_responses": [{"index": it.partition} | refused for it in topic.partitions],
                }
                for topic in request.topics
            ],
        }


def _refused_records(error: RecordError) -> _Fields:
    fields: _Fields = {"error_code": ErrorCode(error.error_code), "error_message": error.message}
    if isinstance(error, InvalidRecord) and error.index is not None:
        fields["record_errors"] = [{"batch_index": error.index, "batch_index_error_message": error.message}]
    return fields
