"""ConsumerGroupHeartbeat: the one request of members of the consumer protocol (KIP-848)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, cast

from smq_broker.kafka.apis.error_codes import NO_THROTTLE
from smq_broker.kafka.groups.answers import code, micros, timedelta_of
from smq_broker.kafka.groups.coordinator import GroupCoordinator, GroupFailure
from smq_broker.kafka.groups.group_access import usable_group
from smq_broker.kafka.groups.hosted_group import HostedGroup
from smq_broker.kafka.groups.topic_lookup import TopicLookup
from smq_broker.kafka.protocol.messages import RequestContext, ResponseBody
from smq_core.kafka_groups.consumer.group import ConsumerGroup
from smq_core.kafka_groups.consumer.heartbeats import HeartbeatAnswer, HeartbeatRefused, HeartbeatRequest
from smq_core.kafka_groups.consumer.member import JOINING
from smq_core.kafka_groups.consumer.partitions import PartitionsByTopic, TopicSize
from smq_core.kafka_groups.group_errors import GroupError

# Clients make their ids themselves from here on.
OWN_IDS_FROM = 1


class ConsumerMembershipApi:
    def __init__(self, coordinator: GroupCoordinator, topics: TopicLookup) -> None:
        self._coordinator = coordinator
        self._topics = topics

    async def heartbeat(self, request: Any, context: RequestContext) -> ResponseBody:
        wanted = _heartbeat_request(request, context)
        try:
            if not request.group_id:
                raise GroupFailure(GroupError.INVALID_REQUEST, "GroupId can't be empty.")
            group = await usable_group(self._coordinator, context.access, request.group_id, wanted.names or ())
            wanted.check()
            answer = await self._heartbeat(group, wanted, context)
        except (GroupFailure, HeartbeatRefused) as refused:
            answer = HeartbeatAnswer(error=refused.error, message=refused.message, member_id=wanted.member_id)
        return {
            "throttle_time": NO_THROTTLE,
            "error_code": code(answer.error),
            "error_message": answer.message,
            "member_id": answer.member_id,
            "member_epoch": answer.epoch,
            "heartbeat_interval": timedelta_of(answer.heartbeat_interval),
            "assignment": None if answer.assignment is None else {"topic_partitions": _topics_of(answer.assignment)},
        }

    async def _heartbeat(
        self, group: HostedGroup, wanted: HeartbeatRequest, context: RequestContext
    ) -> HeartbeatAnswer:
        await self._coordinator.confirm(group)
        machine = _machine(group, wanted)
        pattern = machine.pattern_to_match(wanted, group.now())
        if pattern or wanted.pattern is not None:
            matched = await self._topics.matching(pattern, context.access, group.name) if pattern else frozenset()
            wanted = replace(wanted, matched=matched)
        names = machine.names_to_find(wanted, group.now())
        topics: dict[str, TopicSize | None] = {}
        if names:
            try:
                topics = await self._topics.named(names)
            except GroupFailure:
                if not names <= machine.topics.keys():
                    raise  # otherwise the group goes on with what it knows
        machine = _machine(group, wanted)  # it may be another one by now
        answer = await group.wait_for(lambda ticket, now: machine.heartbeat(ticket, wanted, topics, now))
        return cast(HeartbeatAnswer, answer)


def _machine(group: HostedGroup, wanted: HeartbeatRequest) -> ConsumerGroup:
    """Raises GroupFailure."""
    if wanted.epoch != JOINING:
        if not isinstance(group.machine, ConsumerGroup):
            raise GroupFailure(GroupError.UNKNOWN_MEMBER_ID, f"{wanted.member_id} is no member of the group")
        return group.machine
    machine = group.consumer()
    if machine is None:
        raise GroupFailure(
            group.why_other_protocol(GroupError.GROUP_ID_NOT_FOUND),
            f"group {group.name} has members of the classic protocol: end them before members with "
            "group.protocol=consumer join",
        )
    return machine


def _heartbeat_request(request: Any, context: RequestContext) -> HeartbeatRequest:
    new_id = str(uuid.uuid4()) if context.version < OWN_IDS_FROM and request.member_epoch == JOINING else ""
    rebalance_timeout = micros(request.rebalance_timeout)
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return HeartbeatRequest(
        member_id=request.member_id or new_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        client_host=context.connection.peer.rpartition(":")[0],
        rebalance_timeout=rebalance_timeout if rebalance_timeout >= 0 else None,
        names=None if names is None else frozenset(names),
        pattern=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else frozenset((str(it.topic_id), number) for it in owned for number in it.partitions),
    )


def _topics_of(assignment: PartitionsByTopic) -> list[dict[str, Any]]:
    return [{"topic_id": uuid.UUID(topic), "partitions": numbers} for topic, numbers in assignment.items()]
