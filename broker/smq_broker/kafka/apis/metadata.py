"""Metadata and DescribeCluster: which brokers and topics there are, and who leads their partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.cluster import KafkaCluster, KafkaNode, node_id
from smq_broker.kafka.executor import Blocking
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_broker.kafka.protocol.sessions import RequestAccess
from smq_broker.kafka.topics import KafkaTopic, KafkaTopics, leader_epoch
from smq_core.errors import StoreUnavailable
from smq_core.kafka_topics.names import is_kafka_name

# A request for more topics is answered in parts of that many, and a list of all topics says which ones there are not.
TOPICS_AT_ONCE = 100
# Responses have null for the name of a topic whose id nobody has.
NULL_NAME_FROM = 12


# Creates the topic of a name with the defaults of the cluster, with the rights of the client.
CreateTopic: TypeAlias = Callable[[str, RequestContext], Awaitable[ErrorCode]]


class MetadataApi:
    """``create_topic`` is called for absent topics that a client wants to use. With None they stay absent."""

    def __init__(
        self, cluster: KafkaCluster, topics: KafkaTopics, blocking: Blocking, create_topic: CreateTopic | None
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._blocking = blocking
        self._create_topic = create_topic

    async def metadata(self, request: Any, context: RequestContext) -> ResponseBody:
        return {
            "throttle_time": NO_THROTTLE,
            "error_code": ErrorCode.none,
            "brokers": [_broker(node) for node in self._cluster.nodes()],
            "cluster_id": self._cluster.id,
            "controller_id": self._cluster.own_id,
            "topics": await self._topics_of(request, context),
        }

    async def describe_cluster(self, _: Any, context: RequestContext) -> ResponseBody:
        return {
            "throttle_time": NO_THROTTLE,
            "error_code": ErrorCode.none,
            "endpoint_type": 1,
            "cluster_id": self._cluster.id,
            "controller_id": self._cluster.own_id,
            "brokers": [_broker(it) | {"broker_id": it.id, "is_fenced": False} for it in self._cluster.nodes()],
        }

    async def _topics_of(self, request: Any, context: RequestContext) -> Sequence[dict[str, Any]]:
        # Before version 1 an empty list means all topics, since then null does.
        if request.topics is None or (not request.topics and context.version == 0):
            return await self._all(context.access)
        # Kafka takes it for wanted in versions that do not say it.
        creates = self._create_topic if getattr(request, "allow_auto_topic_creation", True) else None
        topics = await self._wanted(request.topics, context, creates)
        if context.version < NULL_NAME_FROM:
            return [it | {"name": it["name"] or ""} for it in topics]
        return topics

    async def _all(self, access: RequestAccess) -> Sequence[dict[str, Any]]:
        try:
            found = await self._blocking.call(self._topics.all)
        except StoreUnavailable:
            return []
        visible = await access.visible([it.topic.name for it in found])
        return await self._blocking.call(lambda: [self._topic(it) for it in found if it.topic.name in visible])

    async def _wanted(
        self, wanted: Sequence[Any], context: RequestContext, create: CreateTopic | None
    ) -> Sequence[dict[str, Any]]:
        """Of a topic that the client may not see, it is not even said whether there is one."""
        access = context.access
        codes = {it.name: await access.topic(it.name) for it in wanted if it.name is not None}
        denied = {name: code for name, code in codes.items() if code is not ErrorCode.none}
        found = await self._find_all([it for it in wanted if it.name not in denied])
        if create is not None:
            found = [await self._created(it, create, context) for it in found]
        for it in found:
            if isinstance(it, KafkaTopic) and it.name not in codes:  # it was named by its id
                codes[it.name] = await access.topic(it.name)

        def describe(it: KafkaTopic | dict[str, Any]) -> dict[str, Any]:
            if not isinstance(it, KafkaTopic):
                return it
            if codes[it.name] is not ErrorCode.none:
                return _unknown(None, it.id, ErrorCode.unknown_topic_id)
            return self._topic(it)

        refused = [_unknown(name, None, code) for name, code in denied.items()]
        return await self._blocking.call(lambda: [*refused, *map(describe, found)])

    async def _find_all(self, wanted: Sequence[Any]) -> list[KafkaTopic | dict[str, Any]]:
        """In parts, so that a request for thousands of topics keeps no thread from other requests."""
        absent: Collection[str] = ()
        if len(wanted) > TOPICS_AT_ONCE:
            with suppress(StoreUnavailable):
                names = [it.name for it in wanted if it.name is not None]
                absent = await self._blocking.call(lambda: self._topics.unlisted(names))
        found: list[KafkaTopic | dict[str, Any]] = []
        for start in range(0, len(wanted), TOPICS_AT_ONCE):
            part = wanted[start : start + TOPICS_AT_ONCE]
            found += await self._blocking.call(partial(self._find_each, part, absent))
        return found

    def _find_each(self, wanted: Sequence[Any], absent: Collection[str]) -> list[KafkaTopic | dict[str, Any]]:
        return [
            _unknown(it.name, _id_of(it), ErrorCode.unknown_topic_or_partition) if it.name in absent else self._find(it)
            for it in wanted
        ]

    def _find(self, wanted: Any) -> KafkaTopic | dict[str, Any]:
        """The topic, or the answer without one."""
        name, id_ = wanted.name, _id_of(wanted)
        if name is not None and not is_kafka_name(name):
            return _unknown(name, id_, ErrorCode.invalid_topic_exception)
        try:
            found = self._topics.named(name) if name is not None else self._topics.identified(id_)
        except StoreUnavailable:
            return _unknown(name, id_, ErrorCode.leader_not_available)
        missing = ErrorCode.unknown_topic_or_partition if name is not None else ErrorCode.unknown_topic_id
        return found if found is not None else _unknown(name, id_, missing)

    async def _created(
        self, found: KafkaTopic | dict[str, Any], create: CreateTopic, context: RequestContext
    ) -> KafkaTopic | dict[str, Any]:
        """The topic, also if it had to be created. Another client may create it at the same time."""
        if isinstance(found, KafkaTopic) or found["error_code"] is not ErrorCode.unknown_topic_or_partition:
            return found
        name = found["name"]
        code = await create(name, context)
        if code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            return _unknown(name, None, code)
        made = await self._blocking.call(lambda: self._topics.named(name))
        return made if made is not None else _unknown(name, None, ErrorCode.leader_not_available)

    def _topic(self, found: KafkaTopic) -> dict[str, Any]:
        known = {node.id for node in self._cluster.nodes()}
        return {
            "error_code": ErrorCode.none,
            "name": found.name,
            "topic_id": found.id,
            "is_internal": False,
            "partitions": [describe_partition(found, number, known) for number in range(found.partitions)],
        }


def describe_partition(found: KafkaTopic, number: int, known: set[int]) -> dict[str, Any]:
    segment = found.segment(number)
    leader = node_id(segment.primary.incarnation) if segment is not None else -1
    if segment is None or leader not in known:
        return {
            "error_code": ErrorCode.leader_not_available,
            "partition_index": number,
            "leader_id": -1,
            "leader_epoch": -1,
            "replica_nodes": (),
            "isr_nodes": (),
            "offline_replicas": (),
        }
    replicas = [id_ for it in segment.replicas if (id_ := node_id(it.incarnation)) in known]
    return {
        "error_code": ErrorCode.none,
        "partition_index": number,
        "leader_id": leader,
        "leader_epoch": leader_epoch(segment),
        "replica_nodes": replicas,
        "isr_nodes": replicas,
        "offline_replicas": (),
    }


def _id_of(wanted: Any) -> Any:
    """The id of a topic in a request, if its version has one."""
    return getattr(wanted, "topic_id", None)


def _unknown(name: str | None, id_: object, error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "name": name, "topic_id": id_, "is_internal": False, "partitions": ()}


def _broker(node: KafkaNode) -> dict[str, Any]:
    return {"node_id": node.id, "host": node.host, "port": node.port, "rack": None}
