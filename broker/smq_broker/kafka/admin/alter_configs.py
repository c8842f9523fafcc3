"""AlterConfigs and IncrementalAlterConfigs: settings of topics in Kafka's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kio.schema.errors import ErrorCode

from smq_broker.kafka.admin.describe_configs import TOPIC
from smq_broker.kafka.admin.topic_changes import TopicChanges, check, outcome
from smq_broker.kafka.apis.error_codes import NO_THROTTLE, Refused
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_broker.kafka.topics import KafkaTopic, KafkaTopics
from smq_core.kafka_topics.configs import (
    CLEANUP_POLICY,
    SETTABLE,
    InvalidConfig,
    described,
    policy_list,
    settings,
)
from smq_core.model.schema_evolution import newest_schema

SET, UNSET, APPEND, SUBTRACT = range(4)

# Keys with their values; None stands for the default.
_Configs: TypeAlias = dict[str, str | None]
# From a resource of a request, and what is set now, to what shall be set.
_Change: TypeAlias = Callable[[Any, Mapping[str, str]], _Configs]


class AlterConfigsApi:
    def __init__(self, *, topics: KafkaTopics, changes: TopicChanges, max_message_bytes: int) -> None:
        self._topics = topics
        self._changes = changes
        self._max_message_bytes = max_message_bytes

    async def alter_configs(self, request: Any, context: RequestContext) -> ResponseBody:
        """Keys that are not given get their defaults."""

        def replaced(resource: Any, _: Mapping[str, str]) -> _Configs:
            return dict.fromkeys(SETTABLE) | {it.name: it.value for it in resource.configs}

        return await self._alter_all(context, request, replaced)

    async def incremental_alter_configs(self, request: Any, context: RequestContext) -> ResponseBody:
        return await self._alter_all(context, request, _changed)

    async def _alter_all(self, context: RequestContext, request: Any, change: _Change) -> ResponseBody:
        responses = []
        for it in request.resources:
            code, message = await outcome(self._alter(context, it, change, preview=request.validate_only))
            named = {"resource_type": it.resource_type, "resource_name": it.resource_name}
            responses.append(named | {"error_code": code, "error_message": message})
        return {"throttle_time": NO_THROTTLE, "responses": responses}

    async def _alter(
        self,
        context: RequestContext,
        resource: Any,
        change: _Change,
        *,
        preview: bool,
    ) -> None:
        """Raises Refused, InvalidConfig."""
        if resource.resource_type != TOPIC:
            raise Refused(
                ErrorCode.invalid_request,
                "only topics are configured by clients: brokers have flags, see smq-broker -h",
            )
        await check(context, resource.resource_name)
        found: KafkaTopic | None = await self._changes.read(
            lambda: self._topics.named(resource.resource_name, fresh=True)
        )
        if found is None:
            raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic {resource.resource_name}")
        spec = found.topic.spec
        present = {
            it.name: it.value for it in described(spec, self._max_message_bytes) if it.is_set and not it.read_only
        }
        fields = settings(
            change(resource, present),
            partitions=spec.partitions,
            replicas=spec.replicas,
            max_message_bytes=self._max_message_bytes,
        )
        schema = newest_schema(found.layout, spec.schema)
        await self._changes.call(context, lambda admin: admin.alter(found.topic.name, schema, fields, preview=preview))


def _changed(resource: Any, present: Mapping[str, str]) -> _Configs:
    """The keys that are set, after these changes. Raises InvalidConfig."""
    made: _Configs = dict(present)
    for it in resource.configs:
        if it.config_operation == SET:
            made[it.name] = it.value
        elif it.config_operation == UNSET:
            made[it.name] = None
        elif it.name != CLEANUP_POLICY or it.config_operation not in (APPEND, SUBTRACT):
            raise InvalidConfig(f"{it.name} is no list that could be appended to: set it")
        else:
            made[it.name] = _list_change(present.get(it.name, "delete"), it.value or "", it.config_operation)
    return made


def _list_change(present: str, value: str, operation: int) -> str:
    known, given = policy_list(present), policy_list(value)
    kept = [it for it in known if it not in given]
    return ",".join([*kept, *given] if operation == APPEND else kept)
