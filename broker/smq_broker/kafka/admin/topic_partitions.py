"""DescribeTopicPartitions: as Metadata, in pages."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.apis.metadata import describe_partition
from smq_broker.kafka.cluster import KafkaCluster
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_broker.kafka.topics import KafkaTopic, KafkaTopics
from smq_core.errors import StoreUnavailable

# Of one response, whatever a client says: Kafka's default.
MAX_PARTITIONS = 2000


class TopicPartitionsApi:
    def __init__(self, cluster: KafkaCluster, topics: KafkaTopics, blocking: Blocking) -> None:
        self._cluster = cluster
        self._topics = topics
        self._blocking = blocking

    async def describe(self, request: Any, context: RequestContext) -> ResponseBody:
        """Of topics that the client may not see, a list has none, and others have an error."""
        if request.topics:
            names = sorted({it.name for it in request.topics})
            allowed = {name: await context.access.topic(name) for name in names}
        else:
            found = await self._blocking.call(self._all)
            visible = await context.access.visible([it.topic.name for it in found])
            allowed = {it.name: ErrorCode.none for it in found if it.topic.name in visible}
        return await self._blocking.call(lambda: self._describe(request, allowed))

    def _all(self) -> list[KafkaTopic]:
        try:
            return self._topics.all()
        except StoreUnavailable:
            return []

    def _describe(self, request: Any, allowed: Mapping[str, ErrorCode]) -> ResponseBody:
        known = {node.id for node in self._cluster.nodes()}
        cursor = request.cursor
        first_name, first = (cursor.topic_name, cursor.partition_index) if cursor is not None else ("", 0)
        left = min(max(1, request.response_partition_limit), MAX_PARTITIONS)
        topics: list[dict[str, Any]] = []
        following = None
        for name in (it for it in allowed if it >= first_name):
            if left == 0:
                following = {"topic_name": name, "partition_index": 0}
                break
            found = self._find(name, allowed[name])
            if isinstance(found, ErrorCode):
                topics.append({"error_code": found, "name": name, "topic_id": None, "partitions": ()})
                left -= 1
                continue
            begin = max(0, first) if name == first_name else 0
            numbers = list(islice(range(begin, found.partitions), left))
            left -= max(1, len(numbers))
            partitions = [_partition(found, number, known) for number in numbers]
            topics.append({"error_code": ErrorCode.none, "name": name, "topic_id": found.id, "partitions": partitions})
            if numbers and numbers[-1] + 1 < found.partitions:
                following = {"topic_name": name, "partition_index": numbers[-1] + 1}
                break
        return {"throttle_time": NO_THROTTLE, "topics": topics, "next_cursor": following}

    def _find(self, name: str, allowed: ErrorCode) -> KafkaTopic | ErrorCode:
        if allowed is not ErrorCode.none:
            return allowed
        try:
            return self._topics.named(name) or ErrorCode.unknown_topic_or_partition
        except StoreUnavailable:
            return ErrorCode.leader_not_available


def _partition(found: KafkaTopic, number: int, known: set[int]) -> dict[str, Any]:
    # Java's client does not bear null in place of these lists.
    return describe_partition(found, number, known) | {"eligible_leader_replicas": (), "last_known_elr": ()}
