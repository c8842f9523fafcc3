"""ConsumerGroupDescribe: the members of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.groups.answers import code
from smq_broker.kafka.groups.coordinator import GroupCoordinator, GroupFailure
from smq_broker.kafka.groups.group_access import check_group
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_broker.kafka.protocol.sessions import RequestAccess
from smq_core.kafka_groups.consumer.group import ConsumerGroup
from smq_core.kafka_groups.consumer.member import ConsumerMember
from smq_core.kafka_groups.consumer.partitions import PartitionsByTopic, by_topic
from smq_core.kafka_groups.group_errors import GroupError
from smq_storage.catalog.kafka_groups import CONSUMER

# Of members, in version 1: one of the consumer protocol.
CONSUMER_MEMBER = 1


class ConsumerDescriptionApi:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def describe(self, request: Any, context: RequestContext) -> ResponseBody:
        groups = [await self._describe(name, context.access) for name in request.group_ids]
        return {"throttle_time": NO_THROTTLE, "groups": groups}

    async def _describe(self, name: str, access: RequestAccess) -> dict[str, Any]:
        try:
            stored = await self._coordinator.read(name)
            await check_group(access, stored, self._coordinator.find(name))
            if stored.group_type != CONSUMER or stored.deleted:
                raise GroupFailure(
                    GroupError.GROUP_ID_NOT_FOUND,
                    f"Group {name} not found." if stored.deleted else f"Group {name} is not a consumer group.",
                )
            machine = (await self._coordinator.group(name)).machine
            if not isinstance(machine, ConsumerGroup):  # since it was read
                raise GroupFailure(GroupError.GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
        except GroupFailure as failure:
            return _group(name, code(failure.error), failure.message)
        return _group(name, ErrorCode.none, None) | _described(machine)


def _group(name: str, error: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message,
        "group_id": name,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
    }


def _described(machine: ConsumerGroup) -> dict[str, Any]:
    names = {it.id: name for name, it in machine.topics.items() if it is not None}
    return {
        "group_state": machine.state.value,
        "group_epoch": machine.epoch,
        "assignment_epoch": machine.target_epoch,
        "assignor_name": machine.assignor,
        "members": [_member(it, by_topic(machine.target.get(it.id, ())), names) for it in machine.members.values()],
    }


def _member(member: ConsumerMember, target: PartitionsByTopic, names: dict[str, str]) -> dict[str, Any]:
    return {
        "member_id": member.id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": f"/{member.client_host}",
        "subscribed_topic_names": tuple(sorted(member.names)),
        "subscribed_topic_regex": member.pattern or None,
        "assignment": _assignment(member.assigned, names),
        "target_assignment": _assignment(target, names),
        "member_type": CONSUMER_MEMBER,
    }


def _assignment(partitions: PartitionsByTopic, names: dict[str, str]) -> dict[str, Any]:
    """Topics that were deleted have no names any more."""
    return {
        "topic_partitions": [
            {"topic_id": uuid.UUID(topic), "topic_name": names.get(topic, ""), "partitions": numbers}
            for topic, numbers in partitions.items()
        ]
    }
