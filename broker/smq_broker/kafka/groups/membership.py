"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: requests of members of the classic protocol."""

from __future__ import annotations

import uuid
from typing import Any, cast

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.groups.answers import code, micros
from smq_broker.kafka.groups.coordinator import GroupCoordinator, GroupFailure
from smq_broker.kafka.groups.group_access import usable_group
from smq_broker.kafka.groups.hosted_group import HostedGroup
from smq_broker.kafka.groups.subscriptions import topics_in
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_core.kafka_groups.group import KafkaGroup
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.requests import JoinAnswer, JoinRequest, Protocol, SyncAnswer, SyncRequest

TWO_STEPS_FROM = 4
SKIPS_ASSIGNMENT_FROM = 9
LEAVE_BATCHED_FROM = 3


class MembershipApi:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def join(self, request: Any, context: RequestContext) -> ResponseBody:
        try:
            topics = topics_in(request.protocol_type, (bytes(it.metadata) for it in request.protocols))
            group = await usable_group(self._coordinator, context.access, request.group_id, topics)
            wanted, machine = _join_request(request, context), group.classic()
            if machine is None:  # members of the two protocols cannot share a group here
                raise GroupFailure(group.why_other_protocol(GroupError.INCONSISTENT_GROUP_PROTOCOL))
            answer = await group.wait_for(lambda ticket, now: machine.join(ticket, wanted, now))
        except GroupFailure as failure:
            answer = JoinAnswer(error=failure.error, member_id=request.member_id)
        joined = cast(JoinAnswer, answer)
        # Before version 7 the name must not be null.
        name = joined.protocol_name if joined.protocol_name is not None or context.version >= 7 else ""
        return {
            "throttle_time": NO_THROTTLE,
            "error_code": code(joined.error),
            "generation_id": joined.generation,
            "protocol_type": joined.protocol_type,
            "protocol_name": name,
            "leader": joined.leader,
            "skip_assignment": joined.skip_assignment,
            "member_id": joined.member_id,
            "members": [
                {"member_id": it.id, "group_instance_id": it.instance_id, "metadata": it.metadata}
                for it in joined.members
            ],
        }

    async def sync(self, request: Any, context: RequestContext) -> ResponseBody:
        wanted = SyncRequest(
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=getattr(request, "group_instance_id", None),
            protocol_type=getattr(request, "protocol_type", None),
            protocol_name=getattr(request, "protocol_name", None),
            assignments={it.member_id: it.assignment for it in request.assignments},
        )
        try:
            group = await usable_group(self._coordinator, context.access, request.group_id)
            machine = _classic(group)
            answer = await group.wait_for(lambda ticket, now: machine.sync(ticket, wanted, now))
        except GroupFailure as failure:
            answer = SyncAnswer(error=failure.error)
        synced = cast(SyncAnswer, answer)
        return {
            "throttle_time": NO_THROTTLE,
            "error_code": code(synced.error),
            "protocol_type": synced.protocol_type,
            "protocol_name": synced.protocol_name,
            "assignment": synced.assignment,
        }

    async def heartbeat(self, request: Any, context: RequestContext) -> ResponseBody:
        instance = getattr(request, "group_instance_id", None)
        try:
            group = await usable_group(self._coordinator, context.access, request.group_id)
            machine = _classic(group)
            error = group.act(lambda now: machine.heartbeat(request.member_id, instance, request.generation_id, now))
        except GroupFailure as failure:
            error = failure.error
        return {"throttle_time": NO_THROTTLE, "error_code": code(error)}

    async def leave(self, request: Any, context: RequestContext) -> ResponseBody:
        """From version 3 on several members, each with its own error."""
        if context.version < LEAVE_BATCHED_FROM:
            leaving = [(request.member_id, None)]
        else:
            leaving = [(it.member_id, it.group_instance_id) for it in request.members]
        try:
            group = await usable_group(self._coordinator, context.access, request.group_id)
            machine = _classic(group)
        except GroupFailure as failure:
            return {"throttle_time": NO_THROTTLE, "error_code": code(failure.error), "members": ()}
        members = []
        errors = [
            group.act(lambda now, it=it: machine.leave(it[0], it[1], now))  # type: ignore[misc]
            for it in leaving
        ]
        for (id_, instance), error in zip(leaving, errors, strict=True):
            members.append({"member_id": id_, "group_instance_id": instance, "error_code": code(error)})
        first = errors[0] if context.version < LEAVE_BATCHED_FROM else GroupError.NONE
        return {"throttle_time": NO_THROTTLE, "error_code": code(first), "members": members}


def _classic(group: HostedGroup) -> KafkaGroup:
    """The machine of a group that should have members of the classic protocol. Raises GroupFailure."""
    if not isinstance(group.machine, KafkaGroup):
        raise GroupFailure(GroupError.UNKNOWN_MEMBER_ID)
    return group.machine


def _join_request(request: Any, context: RequestContext) -> JoinRequest:
    instance = getattr(request, "group_instance_id", None)
    session = micros(request.session_timeout)
    rebalance = micros(request.rebalance_timeout) if hasattr(request, "rebalance_timeout") else session
    return JoinRequest(
        member_id=request.member_id,
        new_id=f"{instance or context.client_id or ''}-{uuid.uuid4()}",
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(it.name, bytes(it.metadata)) for it in request.protocols),
        session_timeout=session,
        rebalance_timeout=rebalance if rebalance > 0 else session,
        instance_id=instance,
        client_id=context.client_id or "",
        client_host=context.connection.peer.rpartition(":")[0],
        must_know_its_id=context.version >= TWO_STEPS_FROM,
        may_skip_assignment=context.version >= SKIPS_ASSIGNMENT_FROM,
    )
