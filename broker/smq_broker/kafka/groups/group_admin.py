"""DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.groups.answers import code
from smq_broker.kafka.groups.coordinator import GroupCoordinator, GroupFailure
from smq_broker.kafka.groups.group_access import check_group, usable_group
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_broker.kafka.protocol.sessions import RequestAccess
from smq_core.kafka_groups.consumer.group import ConsumerGroupState
from smq_core.kafka_groups.group import GroupState, KafkaGroup
from smq_core.kafka_groups.group_errors import GroupError
from smq_storage.catalog.kafka_groups import CONSUMER, StoredKafkaGroup

# The state of a group that there is not.
DEAD = "Dead"
# Such a group is an error from this version on.
NOT_FOUND_FROM = 6


class GroupAdminApi:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def describe(self, request: Any, context: RequestContext) -> ResponseBody:
        groups = [await self._describe(name, context.access, context.version) for name in request.groups]
        return {"throttle_time": NO_THROTTLE, "groups": groups}

    async def list_groups(self, request: Any, context: RequestContext) -> ResponseBody:
        """Those whose coordinator this is, and which the client may use: clients send the request to all brokers."""
        states = {it.lower() for it in getattr(request, "states_filter", ())}
        types = {it.lower() for it in getattr(request, "types_filter", ())}
        try:
            stored = await self._coordinator.stored_groups()
        except GroupFailure as failure:
            return {"throttle_time": NO_THROTTLE, "error_code": code(failure.error), "groups": ()}
        groups = [
            {
                "group_id": it.name,
                "protocol_type": it.protocol_type,
                "group_state": self._state(it),
                "group_type": it.group_type,
            }
            for it in stored
            if (not types or it.group_type in types) and await self._is_visible(it, context.access)
        ]
        return {
            "throttle_time": NO_THROTTLE,
            "error_code": ErrorCode.none,
            "groups": [it for it in groups if not states or it["group_state"].lower() in states],
        }

    async def delete(self, request: Any, context: RequestContext) -> ResponseBody:
        results = [
            {"group_id": name, "error_code": code(await self._delete(name, context.access))}
            for name in request.groups_names
        ]
        return {"throttle_time": NO_THROTTLE, "results": results}

    async def _is_visible(self, stored: StoredKafkaGroup, access: RequestAccess) -> bool:
        try:
            await check_group(access, stored, self._coordinator.find(stored.name), listed=True)
        except GroupFailure:
            return False
        return True

    async def _describe(self, name: str, access: RequestAccess, version: int) -> dict[str, Any]:
        try:
            stored = await self._coordinator.read(name)
            await check_group(access, stored, self._coordinator.find(name))
        except GroupFailure as failure:
            return _described(name, code(failure.error), "", "", "")
        hosted = self._coordinator.find(name)
        if hosted is not None and isinstance(hosted.machine, KafkaGroup) and len(hosted.machine.members):
            return _described_members(name, hosted.machine)
        if stored.deleted or stored.group_type == CONSUMER:
            reason = f"Group {name} not found." if stored.deleted else f"Group {name} is not a classic group."
            error = ErrorCode.group_id_not_found if version >= NOT_FOUND_FROM else ErrorCode.none
            return _described(name, error, DEAD, "", "") | {"error_message": reason}
        return _described(name, ErrorCode.none, GroupState.EMPTY.value, stored.protocol_type, "")

    def _state(self, stored: StoredKafkaGroup) -> str:
        hosted = self._coordinator.find(stored.name)
        if hosted is None:  # members that the document has are at their partitions, until one of them is heard
            return (ConsumerGroupState.STABLE if stored.members else ConsumerGroupState.EMPTY).value
        return hosted.machine.state.value

    async def _delete(self, name: str, access: RequestAccess) -> GroupError:
        try:
            group = await usable_group(self._coordinator, access, name)
        except GroupFailure as failure:
            return failure.error
        if len(group.machine.members):
            return GroupError.NON_EMPTY_GROUP
        if group.stored.deleted:
            return GroupError.GROUP_ID_NOT_FOUND
        return await group.change(lambda it: replace(it, offsets={}, deleted=True))


def _described_members(name: str, group: KafkaGroup) -> dict[str, Any]:
    members = [
        {
            "member_id": it.id,
            "group_instance_id": it.instance_id,
            "client_id": it.request.client_id,
            "client_host": f"/{it.request.client_host}",
            "member_metadata": it.metadata(group.protocol),
            "member_assignment": it.assignment,
        }
        for it in group.members.by_id.values()
    ]
    described = _described(name, ErrorCode.none, group.state.value, group.protocol_type or "", group.protocol or "")
    return described | {"members": members}


def _described(name: str, error: ErrorCode, state: str, protocol_type: str, protocol: str) -> dict[str, Any]:
    return {
        "error_code": error,
        "group_id": name,
        "group_state": state,
        "protocol_type": protocol_type,
        "protocol_data": protocol,
        "members": (),
    }
