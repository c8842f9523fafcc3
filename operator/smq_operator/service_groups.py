"""What the leader answers to groups of consumers."""

from __future__ import annotations

from smq_core.errors import Unavailable
from smq_operator.desk import Desk
from smq_operator.refusals import answers
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb


class GroupService:
    """Join, Leave, Commit, Positions, ListGroups."""

    desk: Desk

    @answers
    async def Join(self, request: lpb.JoinGroup) -> lpb.GroupAssignment:
        raise Unavailable("groups are not served yet")

    @answers
    async def Leave(self, request: lpb.LeaveGroup) -> lpb.Empty:
        raise Unavailable("groups are not served yet")

    @answers
    async def Commit(self, request: lpb.CommitPositions) -> lpb.Empty:
        raise Unavailable("groups are not served yet")

    @answers
    async def Positions(self, request: lpb.PositionsRequest) -> lpb.GroupPositions:
        raise Unavailable("groups are not served yet")

    @answers
    async def ListGroups(self, request: pb.LocateRequest) -> lpb.GroupList:
        return lpb.GroupList()
