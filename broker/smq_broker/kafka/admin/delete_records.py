"""DeleteRecords. Retention and `smq topic trim` remove messages as whole segments, and nothing else does."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE, Refused, error_code_of
from smq_broker.kafka.apis.leaders import Leaders
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.partitions.histories import Histories
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_core.errors import SmqError


class DeleteRecordsApi:
    def __init__(self, *, leaders: Leaders, histories: Histories, blocking: Blocking) -> None:
        self._leaders = leaders
        self._histories = histories
        self._blocking = blocking

    async def delete_records(self, request: Any, context: RequestContext) -> ResponseBody:
        topics = []
        for it in request.topics:
            allowed = await context.access.topic(it.name)
            partitions = [await self._answer(it.name, one, allowed) for one in it.partitions]
            topics.append({"name": it.name, "partitions": partitions})
        return {"throttle_time": NO_THROTTLE, "topics": topics}

    async def _answer(self, name: str, wanted: Any, allowed: ErrorCode) -> dict[str, Any]:
        result = {"partition_index": wanted.partition_index, "low_watermark": -1}
        if allowed is not ErrorCode.none:
            return result | {"error_code": allowed}
        try:
            return result | {"error_code": ErrorCode.none, "low_watermark": await self._start(name, wanted)}
        except (Refused, SmqError) as error:
            return result | {"error_code": error_code_of(error)}

    async def _start(self, name: str, wanted: Any) -> int:
        """The first offset of the partition, if no message before the wanted one is left. Raises Refused, SmqError."""
        hosted = await self._leaders.primary(name, wanted.partition_index)
        if not hosted.machine.config.counts_partitions:
            raise Refused(ErrorCode.unsupported_for_message_format)
        start = await self._blocking.call(
            lambda: self._histories.of(hosted.topic).history.log_start(wanted.partition_index)
        )
        if not 0 <= wanted.offset <= start:
            raise Refused(ErrorCode.policy_violation)
        return start
