"""ListOffsets and OffsetForLeaderEpoch: where a partition begins and ends, where a time or a leader's epoch is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE, Refused, error_code_of
from smq_broker.kafka.apis.leaders import Leaders
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.partitions.histories import Histories
from smq_broker.kafka.partitions.rows import rows_of, timestamps_ms
from smq_broker.kafka.partitions.tail_reader import TailRead, TailReader
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import SmqError
from smq_core.model.entities import number_of

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5

Answer = dict[str, Any]


class OffsetsApi:
    def __init__(
        self,
        *,
        leaders: Leaders,
        tails: TailReader,
        histories: Histories,
        blocking: Blocking,
    ) -> None:
        self._leaders = leaders
        self._tails = tails
        self._histories = histories
        self._blocking = blocking

    async def list_offsets(self, request: Any, context: RequestContext) -> ResponseBody:
        topics = []
        for topic in request.topics:
            denied = await context.access.topic(topic.name)
            own = [
                {"partition_index": it.partition_index, "error_code": denied}
                | await self._offset_answer(topic.name, it.partition_index, denied, it.timestamp)
                for it in topic.partitions
            ]
            topics.append({"name": topic.name, "partitions": own})
        return {"throttle_time": NO_THROTTLE, "topics": topics}

    async def offset_for_leader_epoch(self, request: Any, context: RequestContext) -> ResponseBody:
        topics = []
        for topic in request.topics:
            denied = await context.access.topic(topic.topic)
            own = [
                {"partition": it.partition, "error_code": denied}
                | await self._answer(topic.topic, it.partition, denied, partial(self._epoch_end, it.leader_epoch))
                for it in topic.partitions
            ]
            topics.append({"topic": topic.topic, "partitions": own})
        return {"throttle_time": NO_THROTTLE, "topics": topics}

    async def _offset_answer(self, name: str, partition: int, denied: ErrorCode, timestamp: int) -> Answer:
        find = partial(self._offset, timestamp)
        is_latest = timestamp == LATEST  # which most clients ask for, again and again
        return await self._answer(
            name, partition, denied, find, reads_messages=timestamp >= 0, reads_filer=not is_latest
        )

    async def _answer(
        self,
        name: str,
        partition: int,
        denied: ErrorCode,
        find: Callable[[HostedSegment, int, TailRead], Answer],
        *,
        reads_messages: bool = False,
        reads_filer: bool = True,
    ) -> Answer:
        """What ``find`` answers, or the error; nothing if it is denied.

        It gets the messages in memory if it ``reads_messages``, and runs in another thread if it ``reads_filer``.
        """
        if denied is not ErrorCode.none:
            return {}
        try:
            hosted = await self._leaders.primary(name, partition)
            if not hosted.machine.config.counts_partitions:
                raise Refused(ErrorCode.unsupported_for_message_format)
            read = self._tails.read_all if reads_messages else self._tails.read_state
            tail = read(hosted, partition)
            if tail is None:
                raise await self._leaders.why_not_here(name, partition)
            if not reads_filer:
                return find(hosted, partition, tail)
            return await self._blocking.call(lambda: find(hosted, partition, tail))
        except (Refused, SmqError) as error:
            return {"error_code": error_code_of(error)}

    def _offset(self, timestamp: int, hosted: HostedSegment, partition: int, tail: TailRead) -> Answer:
        epoch = number_of(hosted.name)
        if timestamp == LATEST:
            return {"timestamp": -1, "offset": tail.state.high_watermark, "leader_epoch": epoch}
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = self._histories.of(hosted.topic).history.log_start(partition)
            return {"timestamp": -1, "offset": start, "leader_epoch": epoch}
        if timestamp < 0:
            return {"error_code": ErrorCode.unsupported_version}
        found = self._histories.of(hosted.topic).reader.offset_for_time(partition, timestamp)
        if found is None:
            found = _first_since(tail, partition, timestamp)
        if found is None:  # all messages are older
            return {"timestamp": -1, "offset": -1, "leader_epoch": epoch}
        return {"timestamp": found[1], "offset": found[0], "leader_epoch": epoch}

    def _epoch_end(self, epoch: int, hosted: HostedSegment, partition: int, tail: TailRead) -> Answer:
        current = number_of(hosted.name)
        if epoch > current:
            return {"error_code": ErrorCode.unknown_leader_epoch}
        if epoch == current:
            return {"leader_epoch": current, "end_offset": tail.state.high_watermark}
        found, end = self._histories.of(hosted.topic).history.end_of_epoch(partition, epoch)
        return {"leader_epoch": found, "end_offset": end if end is not None else tail.state.high_watermark}


def _first_since(tail: TailRead, partition: int, timestamp: int) -> tuple[int, int] | None:
    """The first message of that time or later in memory: its offset and time."""
    for it in tail.entries:
        times = timestamps_ms(rows_of(it, partition, it.offset).column("timestamp"))
        later = np.flatnonzero(times >= timestamp)
        if later.size:
            return it.offset + int(later[0]), int(times[later[0]])
    return None
