"""The API for consumer groups."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from smq_core.errors import CorruptDocument, InvalidRequest
from smq_operator.api.errors import unary_handler
from smq_operator.api.group_coordinator import GroupCoordinator
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.runtime.readiness import Readiness
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb

log = structlog.get_logger(__name__)

HEARTBEAT_MS = 1000
START_POSITIONS = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class GroupService:
    """Join, Leave, Commit, Positions, ListGroups."""

    readiness: Readiness
    topics: TopicDirectory
    groups: GroupCoordinator

    @unary_handler
    async def JoinGroup(self, request: lpb.JoinGroupRequest) -> lpb.GroupAssignment:
        _require_group_name(request.group)
        start = request.start or "earliest"
        if start not in START_POSITIONS:
            raise InvalidRequest(f"a group starts at {' or '.join(START_POSITIONS)}, not {start!r}")
        member, assignment = await self.groups.join(
            request.topic, request.group, request.member, start, request.generation
        )
        return lpb.GroupAssignment(
            member=member,
            generation=assignment.generation,
            positions=assignment.positions,
            heartbeat_ms=HEARTBEAT_MS,
        )

    @unary_handler
    async def LeaveGroup(self, request: lpb.LeaveGroupRequest) -> lpb.Empty:
        _require_group_name(request.group)
        await self.groups.leave(request.topic, request.group, request.member)
        return lpb.Empty()

    @unary_handler
    async def CommitPositions(self, request: lpb.CommitPositionsRequest) -> lpb.Empty:
        _require_group_name(request.group)
        await self.groups.commit(
            request.topic,
            request.group,
            request.member,
            request.generation,
            dict(request.positions),
            dict(request.known_losses),
        )
        return lpb.Empty()

    @unary_handler
    async def GetPositions(self, request: lpb.PositionsRequest) -> lpb.GroupPositions:
        _require_group_name(request.group)
        groups = self.groups
        lost = await groups.losses(request.topic, request.group)
        return lpb.GroupPositions(
            positions=await groups.positions(request.topic, request.group),
            lost=[
                lpb.GroupPositions.Loss(segment=segment.name, start=start, stop=segment.end, acknowledged=acknowledged)
                for segment, start, acknowledged in lost
            ],
            lost_with_replicas=[
                lpb.GroupPositions.Loss(segment=name, start=it.first, stop=it.upto, at_least=it.open_ended)
                for name, it in await groups.losses_with_replicas(request.topic, request.group)
            ],
        )

    @unary_handler
    async def ListGroups(self, request: pb.LocateRequest) -> lpb.GroupList:
        groups = self.groups
        topic = self.topics.topic(request.topic).name
        entries = []
        for name in await groups.names(topic):
            unreadable = False
            try:
                positions = await groups.positions(topic, name)
            except CorruptDocument as error:  # the other groups are listed all the same
                log.warning("group.positions_unreadable", topic=topic, group=name, message=error.message)
                positions, unreadable = {}, True
            served = groups.loaded(topic, name)
            entries.append(
                lpb.GroupList.Group(
                    name=name,
                    generation=served.generation if served is not None else 0,
                    members=sorted(served.members) if served is not None else (),
                    positions=positions,
                    unreadable=unreadable,
                )
            )
        return lpb.GroupList(groups=entries)


def _require_group_name(group: str) -> None:
    if not group:
        raise InvalidRequest("a group needs a name")
