"""CreateTopics and CreatePartitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from smq_broker.kafka.admin.describe_configs import entry_fields
from smq_broker.kafka.admin.topic_changes import MAX_WAIT_SECONDS, TopicChanges, check, outcome
from smq_broker.kafka.apis.error_codes import NO_THROTTLE, Refused
from smq_broker.kafka.cluster import KafkaCluster
from smq_broker.kafka.protocol.entities import build
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_broker.kafka.topics import KafkaTopic, KafkaTopics
from smq_core.kafka_topics.configs import described, settings
from smq_core.kafka_topics.names import MAX_CHARACTERS, is_kafka_name, resource_name
from smq_core.model.keyspace import MAX_KAFKA_PARTITIONS
from smq_core.model.names import DEFAULT_NAMESPACE

API_KEY, MAX_VERSION = 19, 7
# Of clients that leave the number to the cluster. Partitions cost nothing here until a segment splits.
DEFAULT_PARTITIONS = 12
# An ack means that two brokers have a message, unless it is stored first.
MIN_REPLICAS = 2
OF_THE_CLUSTER = -1


class CreateTopicsApi:
    def __init__(
        self, *, topics: KafkaTopics, changes: TopicChanges, cluster: KafkaCluster, max_message_bytes: int
    ) -> None:
        self._topics = topics
        self._changes = changes
        self._cluster = cluster
        self._max_message_bytes = max_message_bytes

    async def create_topics(self, request: Any, context: RequestContext) -> ResponseBody:
        named = Counter(it.name for it in request.topics)
        results = [self._result(context, request, it, is_twice=named[it.name] > 1) for it in request.topics]
        return {"throttle_time": NO_THROTTLE, "topics": await asyncio.gather(*results)}

    async def create_default(self, name: str, context: RequestContext) -> ErrorCode:
        """Creates a topic as for a client that leaves all to the cluster."""
        wanted = {
            "name": name,
            "num_partitions": OF_THE_CLUSTER,
            "replication_factor": OF_THE_CLUSTER,
            "assignments": (),
            "configs": (),
        }
        timeout = i32Timedelta.parse(timedelta(seconds=MAX_WAIT_SECONDS))
        values = {"topics": [wanted], "timeout": timeout, "validate_only": False}
        request = build(load_request_schema(API_KEY, MAX_VERSION), values)
        (result,) = (await self.create_topics(request, context))["topics"]
        code: ErrorCode = result["error_code"]
        return code

    async def create_partitions(self, request: Any, context: RequestContext) -> ResponseBody:
        """A topic keeps the partitions that it was created with, so none of these is carried out."""
        results = []
        for it in request.topics:
            code, message = await outcome(self._refuse_partitions(context, it))
            results.append({"name": it.name, "error_code": code, "error_message": message})
        return {"throttle_time": NO_THROTTLE, "results": results}

    async def _result(self, context: RequestContext, request: Any, wanted: Any, *, is_twice: bool) -> dict[str, Any]:
        code, message = await outcome(self._create(context, request, wanted, is_twice=is_twice))
        result = {"name": wanted.name, "error_code": code, "error_message": message, "topic_id": None, "configs": ()}
        if code is not ErrorCode.none or request.validate_only:
            return result
        found: KafkaTopic | None = await self._changes.read(lambda: self._topics.named(wanted.name))
        if found is None:
            return result
        configs = [entry_fields(it) for it in described(found.topic.spec, self._max_message_bytes)]
        return result | {
            "topic_id": found.id,
            "num_partitions": found.partitions,
            "replication_factor": found.topic.spec.replicas,
            "configs": configs,
        }

    async def _create(self, context: RequestContext, request: Any, wanted: Any, *, is_twice: bool) -> None:
        """Raises Refused, InvalidConfig."""
        name = wanted.name
        if is_twice:
            raise Refused(ErrorCode.invalid_request, f"the request names topic {name} more than once")
        if not is_kafka_name(name):
            raise Refused(
                ErrorCode.invalid_topic_exception,
                f"a topic's name has 1 to {MAX_CHARACTERS} of letters, digits, '.', '_' and '-', and is not '..'",
            )
        await check(context, name)
        if await self._changes.read(lambda: self._topics.named(name)) is not None:
            raise Refused(ErrorCode.topic_already_exists, f"there is a topic {name} already")
        spec = self._spec(wanted)
        resource, preview = resource_name(name), request.validate_only
        await self._changes.call(
            context, lambda admin: admin.create(resource, DEFAULT_NAMESPACE, spec, preview=preview)
        )
        if not preview:
            self._topics.forget_list()
            seconds = request.timeout.total_seconds()
            await self._changes.wait_until(lambda: self._topics.named(name) is not None, seconds)

    def _spec(self, wanted: Any) -> dict[str, Any]:
        """Of a Topic manifest. Raises Refused, InvalidConfig."""
        partitions, replicas = _partitions(wanted), self._replicas(wanted)
        set_fields = settings(
            {it.name: it.value for it in wanted.configs},
            partitions=partitions,
            replicas=replicas,
            max_message_bytes=self._max_message_bytes,
        )
        kafka = {} if resource_name(wanted.name) == wanted.name else {"name": wanted.name}
        # Groups of Kafka clients hold up no retention, and a deleted topic leaves nothing behind.
        made = {
            "partitions": partitions,
            "partitioner": "Kafka",
            "replicas": replicas,
            "retention": _given(set_fields.get("retention", {})) | {"unread": "Expire"},
            "deletionPolicy": "Delete",
            "kafka": kafka | _given(set_fields.get("kafka", {})),
        }
        return {name: value for name, value in made.items() if value != {}}

    def _replicas(self, wanted: Any) -> int:
        given, brokers = wanted.replication_factor, len(self._cluster.nodes())
        if given == OF_THE_CLUSTER:
            return MIN_REPLICAS
        if not 1 <= given <= max(brokers, MIN_REPLICAS):
            raise Refused(
                ErrorCode.invalid_replication_factor,
                f"the replication factor must be 1 to {brokers}, the number of brokers, not {given}",
            )
        return max(given, MIN_REPLICAS)

    async def _refuse_partitions(self, context: RequestContext, wanted: Any) -> None:
        """Raises Refused."""
        await check(context, wanted.name)
        found: KafkaTopic | None = await self._changes.read(lambda: self._topics.named(wanted.name))
        if found is None:
            raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic {wanted.name}")
        if wanted.count == found.partitions:
            raise Refused(
                ErrorCode.invalid_partitions, f"topic {wanted.name} has {found.partitions} partitions already"
            )
        raise Refused(
            ErrorCode.invalid_partitions,
            f"topic {wanted.name} keeps its {found.partitions} partitions: they spread over more brokers by themselves "
            "under load. For more of them create another topic",
        )


def _partitions(wanted: Any) -> int:
    if wanted.assignments:
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            "the leader places replicas, and moves them under load: give a number of partitions and replicas instead",
        )
    if wanted.num_partitions == OF_THE_CLUSTER:
        return DEFAULT_PARTITIONS
    if not 1 <= wanted.num_partitions <= MAX_KAFKA_PARTITIONS:
        raise Refused(
            ErrorCode.invalid_partitions,
            f"a topic has 1 to {MAX_KAFKA_PARTITIONS} partitions, not {wanted.num_partitions}",
        )
    return int(wanted.num_partitions)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
