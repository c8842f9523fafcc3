"""Which partitions this broker leads, and why others are not served here."""

from __future__ import annotations

import uuid

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import Refused
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.partitions.primaries import Primaries
from smq_broker.kafka.topics import KafkaTopics, kafka_name, topic_id
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.registry import SegmentRegistry
from smq_core.errors import SmqError, StoreUnavailable


class Leaders:
    def __init__(self, registry: SegmentRegistry, topics: KafkaTopics, blocking: Blocking) -> None:
        self._primaries = Primaries(registry)
        self._topics = topics
        self._blocking = blocking

    async def name_of(self, name: str, id_: uuid.UUID | None) -> str | None:
        """The name of a topic in a request, which has its id from some version on. None if nobody has that id."""
        if id_ is None:
            return name
        known = self._topics.known_id(id_) or self._primaries.name_of(id_)
        if known is not None:
            return known
        try:
            found = await self._blocking.call(lambda: self._topics.identified(id_))
        except SmqError:
            return None
        return found.name if found is not None else None

    async def primary(self, name: str | None, partition: int, id_: uuid.UUID | None = None) -> HostedSegment:
        """The segment that takes this partition's messages, whose primary is here.

        With ``id_`` the topic has to be that one. Raises Refused, StoreUnavailable.
        """
        if name is None:
            raise Refused(ErrorCode.unknown_topic_id)
        hosted = self._find(name, partition)
        if hosted is None and self._topics.known(name) is None:
            await self._blocking.call(lambda: self._topics.named(name))
            hosted = self._find(name, partition)
        if hosted is None or hosted.machine.outcome is not None:
            raise await self.why_not_here(name, partition)
        if id_ is not None and topic_id(hosted.topic.uid) != id_:
            raise Refused(ErrorCode.unknown_topic_id)
        return hosted

    def _find(self, name: str, partition: int) -> HostedSegment | None:
        full = self._topics.known(name)
        hosted = self._primaries.find(full, partition) if full is not None else None
        return hosted if hosted is not None and kafka_name(hosted.topic) == name else None

    async def why_not_here(self, name: str, partition: int) -> Refused:
        """The error of a request for a partition that this broker does not lead."""
        try:
            found = await self._blocking.call(lambda: self._topics.named(name))
        except StoreUnavailable as error:
            return Refused(ErrorCode.kafka_storage_error, error.message)
        if found is None or not 0 <= partition < found.partitions:
            return Refused(ErrorCode.unknown_topic_or_partition)
        return Refused(ErrorCode.not_leader_or_follower)
