"""DescribeConfigs: the configuration of topics in Kafka's words, and a few facts about brokers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.admin.topic_changes import TopicChanges, check
from smq_broker.kafka.apis.error_codes import NO_THROTTLE, Refused
from smq_broker.kafka.cluster import KafkaCluster
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_broker.kafka.topics import KafkaTopic, KafkaTopics
from smq_core.kafka_topics.configs import (
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    MAX_MESSAGE_BYTES,
    MIN_INSYNC_REPLICAS,
    RETENTION_BYTES,
    RETENTION_MS,
    TIMESTAMP_TYPE,
    ConfigEntry,
    described,
)

TOPIC, BROKER = 2, 4
# Where a value comes from.
SET_FOR_TOPIC, STATIC, DEFAULT = 1, 4, 5
BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7

_TYPES = {
    CLEANUP_POLICY: LIST,
    RETENTION_MS: LONG,
    RETENTION_BYTES: LONG,
    MIN_INSYNC_REPLICAS: INT,
    MAX_MESSAGE_BYTES: INT,
    COMPRESSION_TYPE: STRING,
    TIMESTAMP_TYPE: STRING,
    "auto.create.topics.enable": BOOLEAN,
    "delete.topic.enable": BOOLEAN,
    "default.replication.factor": INT,
    "num.partitions": INT,
    "message.max.bytes": INT,
}
_DOCUMENTATION = {
    CLEANUP_POLICY: "compact is told to clients only: nothing is compacted, and such a topic keeps everything.",
    RETENTION_MS: "The age after which messages are removed, as whole segments.",
    RETENTION_BYTES: "The size after which the oldest messages are removed, of the topic divided by its partitions.",
    MIN_INSYNC_REPLICAS: "An ack waits for all replicas of a segment.",
    MAX_MESSAGE_BYTES: "The largest batch that brokers take.",
    COMPRESSION_TYPE: "Messages are stored as Parquet; clients get them without compression.",
    TIMESTAMP_TYPE: "Messages keep the time that their producer gives them.",
}


def broker_configs(*, partitions: int, replicas: int, max_message_bytes: int) -> tuple[ConfigEntry, ...]:
    """What tools look for. Brokers are configured by their flags."""
    values = {
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "delete.topic.enable": "true",
        "message.max.bytes": max_message_bytes,
        MIN_INSYNC_REPLICAS: replicas,
        "num.partitions": partitions,
    }
    return tuple(ConfigEntry(name, str(value), read_only=True) for name, value in values.items())


class DescribeConfigsApi:
    def __init__(
        self,
        *,
        topics: KafkaTopics,
        changes: TopicChanges,
        cluster: KafkaCluster,
        max_message_bytes: int,
        broker_configs: tuple[ConfigEntry, ...],
    ) -> None:
        self._topics = topics
        self._changes = changes
        self._cluster = cluster
        self._max_message_bytes = max_message_bytes
        self._broker_configs = broker_configs

    async def describe_configs(self, request: Any, context: RequestContext) -> ResponseBody:
        documented = getattr(request, "include_documentation", False)
        results = []
        for resource in request.resources:
            result = {"resource_type": resource.resource_type, "resource_name": resource.resource_name, "configs": ()}
            try:
                entries = await self._entries(context, resource.resource_type, resource.resource_name)
            except Refused as refused:
                results.append(result | {"error_code": refused.code, "error_message": refused.message})
                continue
            configs = _chosen(entries, resource.configuration_keys, documented, synonyms=request.include_synonyms)
            results.append(result | {"error_code": ErrorCode.none, "error_message": None, "configs": configs})
        return {"throttle_time": NO_THROTTLE, "results": results}

    async def _entries(self, context: RequestContext, kind: int, name: str) -> tuple[ConfigEntry, ...]:
        """Raises Refused."""
        if kind == TOPIC:
            await check(context, name)
            found: KafkaTopic | None = await self._changes.read(lambda: self._topics.named(name, fresh=True))
            if found is None:
                raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic {name}")
            return described(found.topic.spec, self._max_message_bytes)
        if kind == BROKER:
            if name and name not in {str(node.id) for node in self._cluster.nodes()}:
                raise Refused(ErrorCode.invalid_request, f"there is no broker {name}")
            # Without a name it is about what is set for all brokers at run time, which is nothing.
            return self._broker_configs if name else ()
        raise Refused(ErrorCode.invalid_request, "only topics and brokers have a configuration here")


def _chosen(
    entries: Iterable[ConfigEntry], keys: Iterable[str] | None, documented: bool, *, synonyms: bool
) -> list[dict[str, Any]]:
    wanted = set(keys or ())
    made = []
    for it in entries:
        if wanted and it.name not in wanted:
            continue
        fields = entry_fields(it)
        source = {"name": it.name, "value": it.value, "source": fields["config_source"]}
        made.append(
            fields
            | {
                "synonyms": [source] if synonyms else (),
                "config_type": _TYPES.get(it.name, STRING),
                "documentation": _DOCUMENTATION.get(it.name) if documented else None,
            }
        )
    return made


def entry_fields(entry: ConfigEntry) -> dict[str, Any]:
    """As responses of several APIs have it."""
    source = SET_FOR_TOPIC if entry.is_set else DEFAULT
    if entry.name in (MAX_MESSAGE_BYTES, "message.max.bytes"):
        source = STATIC
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": source,
        "is_sensitive": False,
    }
