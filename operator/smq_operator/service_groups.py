"""What the leader answers to groups of consumers."""

from __future__ import annotations

from smq_core.errors import InvalidRequest
from smq_operator.desk import Desk
from smq_operator.refusals import answers
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb

HEARTBEAT_MS = 1000
STARTS = ("earliest", "latest")


class GroupService:
    """Join, Leave, Commit, Positions, ListGroups."""

    desk: Desk

    @answers
    async def Join(self, request: lpb.JoinGroup) -> lpb.GroupAssignment:
        _must_name(request.group)
        start = request.start or "earliest"
        if start not in STARTS:
            raise InvalidRequest(f"a group starts at {' or '.join(STARTS)}, not {start!r}")
        member, assignment = await self.desk.groups.join(
            request.topic, request.group, request.member, start, request.generation
        )
        return lpb.GroupAssignment(
            member=member,
            generation=assignment.generation,
            positions=assignment.positions,
            heartbeat_ms=HEARTBEAT_MS,
        )

    @answers
    async def Leave(self, request: lpb.LeaveGroup) -> lpb.Empty:
        _must_name(request.group)
        await self.desk.groups.leave(request.topic, request.group, request.member)
        return lpb.Empty()

    @answers
    async def Commit(self, request: lpb.CommitPositions) -> lpb.Empty:
        _must_name(request.group)
        await self.desk.groups.commit(
            request.topic, request.group, request.member, request.generation, dict(request.positions)
        )
        return lpb.Empty()

    @answers
    async def Positions(self, request: lpb.PositionsRequest) -> lpb.GroupPositions:
        _must_name(request.group)
        groups = self.desk.groups
        lost = await groups.losses(request.topic, request.group)
        return lpb.GroupPositions(
            positions=await groups.positions(request.topic, request.group),
            lost=[
                lpb.GroupPositions.Loss(segment=segment.name, start=start, stop=segment.end, old=old)
                for segment, start, old in lost
            ],
        )

    @answers
    async def ListGroups(self, request: pb.LocateRequest) -> lpb.GroupList:
        groups = self.desk.groups
        topic = self.desk.loop.topic(request.topic).name
        told = []
        for name in await groups.names(topic):
            positions = await groups.positions(topic, name)
            served = groups.served(topic, name)
            told.append(
                lpb.GroupList.Group(
                    name=name,
                    generation=served.generation if served is not None else 0,
                    members=sorted(served.members) if served is not None else (),
                    positions=positions,
                )
            )
        return lpb.GroupList(groups=told)


def _must_name(group: str) -> None:
    if not group:
        raise InvalidRequest("a group needs a name")
