"""Why a partition is not served here."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.topics import KafkaTopics
from smq_core.errors import StoreUnavailable


class Leaders:
    def __init__(self, topics: KafkaTopics, blocking: Blocking) -> None:
        self._topics = topics
        self._blocking = blocking

    async def why_not_here(self, name: str, partition: int) -> tuple[ErrorCode, str | None]:
        """The error of a request for a partition that this broker does not lead, and its message."""
        try:
            found = await self._blocking.call(lambda: self._topics.named(name))
        except StoreUnavailable as error:
            return ErrorCode.kafka_storage_error, error.message
        if found is None or not 0 <= partition < found.partitions:
            return ErrorCode.unknown_topic_or_partition, None
        return ErrorCode.not_leader_or_follower, None
