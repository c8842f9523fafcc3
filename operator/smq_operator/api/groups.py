"""The API for consumer groups."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.empty_pb2 import Empty

from smq_core.errors import InvalidRequest
from smq_core.model.entities import Positions
from smq_core.model.group_start import GroupStart
from smq_core.model.names import MAX_NAME_LENGTH, check_labels, check_name
from smq_operator.api.pages import page_of
from smq_operator.api.rpc_errors import unary_handler
from smq_operator.groups.group_changes import GroupChanges
from smq_operator.groups.group_coordinator import GroupCoordinator
from smq_operator.groups.group_lags import GroupLags, LagReport
from smq_operator.groups.group_losses import GroupLosses
from smq_operator.groups.kafka_group_lags import KafkaGroupLag, KafkaGroupLags
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.readiness import Readiness
from smq_proto.enums import GROUP_START
from smq_proto.v1 import groups_pb2
from smq_proto.wire import loss_to_pb

HEARTBEAT_MS = 1000
# The name that the leader gives has that of the group in it.
MAX_MEMBER_LENGTH = 2 * MAX_NAME_LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupService:
    """JoinGroup, LeaveGroup, CommitPositions, GetPositions, SetPositions, DeleteGroup, ListGroups."""

    readiness: Readiness
    groups: GroupCoordinator
    losses: GroupLosses
    changes: GroupChanges
    lags: GroupLags
    kafka: KafkaGroupLags

    @unary_handler
    async def JoinGroup(self, request: groups_pb2.JoinGroupRequest) -> groups_pb2.GroupAssignment:
        _require_group_name(request.group)
        start: GroupStart | Positions
        if request.start == groups_pb2.JoinGroupRequest.POSITIONS:
            start = dict(request.start_positions)
        else:
            start = GroupStart(GROUP_START.word(request.start or groups_pb2.JoinGroupRequest.EARLIEST))
        check_labels([("a member's name", request.member)], MAX_MEMBER_LENGTH)
        member, assignment = await self.groups.join(
            request.topic, request.group, request.member, start, request.generation, dict(request.ended)
        )
        return groups_pb2.GroupAssignment(
            member=member,
            generation=assignment.generation,
            positions=assignment.positions,
            heartbeat_ms=HEARTBEAT_MS,
            epoch=assignment.epoch,
        )

    @unary_handler
    async def LeaveGroup(self, request: groups_pb2.LeaveGroupRequest) -> Empty:
        _require_group_name(request.group)
        await self.groups.leave(request.topic, request.group, request.member)
        return Empty()

    @unary_handler
    async def CommitPositions(self, request: groups_pb2.CommitPositionsRequest) -> Empty:
        _require_group_name(request.group)
        await self.groups.commit(
            request.topic,
            request.group,
            request.member,
            request.generation,
            dict(request.positions),
            dict(request.known_losses),
            request.epoch,
        )
        return Empty()

    @unary_handler
    async def GetPositions(self, request: groups_pb2.GetPositionsRequest) -> groups_pb2.GroupPositions:
        _require_group_name(request.group)
        lost = await self.losses.by_retention(request.topic, request.group)
        return groups_pb2.GroupPositions(
            positions=await self.groups.positions(request.topic, request.group),
            lost=[
                groups_pb2.GroupPositions.SegmentLoss(segment=name, loss=loss_to_pb(loss), acknowledged=acknowledged)
                for name, loss, acknowledged in lost
            ],
            lost_with_replicas=[
                groups_pb2.GroupPositions.SegmentLoss(segment=name, loss=loss_to_pb(loss))
                for name, loss in await self.losses.with_replicas(request.topic, request.group)
            ],
        )

    @unary_handler
    async def SetPositions(self, request: groups_pb2.SetPositionsRequest) -> groups_pb2.SetPositionsReply:
        """Returns when the positions are in the filer."""
        _require_group_name(request.group)
        done = await self.changes.set_positions(
            request.topic, request.group, dict(request.positions), create=request.create, dry_run=request.dry_run
        )
        return groups_pb2.SetPositionsReply(before=done.before, positions=done.after, generation=done.generation)

    @unary_handler
    async def DeleteGroup(self, request: groups_pb2.DeleteGroupRequest) -> Empty:
        _require_group_name(request.group)
        await self.changes.delete(request.topic, request.group)
        return Empty()

    @unary_handler
    async def ListGroups(self, request: groups_pb2.ListGroupsRequest) -> groups_pb2.GroupList:
        """The groups as the filer has them at the first page. One with an unreadable file does not hide the others."""
        managed, groups = await self.groups.read_snapshots(request.topic, again=not request.page_token)
        page, next_page = page_of(
            (name, _group_message(self.lags.report(managed, group)))
            for name, group in groups.items()
            if name > request.page_token
        )
        kafka: list[KafkaGroupLag] = []
        if not request.page_token and managed.topic is not None:
            kafka = await self.kafka.of(managed.topic)
        return groups_pb2.GroupList(
            groups=page,
            next_page_token=next_page,
            kafka_groups=[_kafka_message(it, managed, request.kafka_group) for it in kafka],
        )


def _group_message(report: LagReport) -> groups_pb2.GroupList.Group:
    group, owners = report.group, report.group.owners
    made = groups_pb2.GroupList.Group(
        name=group.name,
        generation=group.generation,
        members=group.members,
        positions=group.positions,
        unreadable=group.unreadable,
        committed_at=group.committed_at,
        last_active_at=group.last_active_at,
    )
    if not group.unreadable:
        made.lag, made.lag_seconds = report.total.messages, report.total.age / 1e6
        made.segments.extend(
            groups_pb2.GroupList.SegmentLag(
                segment=it.segment,
                position=it.position,
                end=it.end,
                member=owners.get(it.segment, ""),
                waits_for_commit=it.segment in group.awaited_commits,
            )
            for it in report.segments
        )
    return made


def _kafka_message(lag: KafkaGroupLag, managed: ManagedTopic, described: str) -> groups_pb2.GroupList.KafkaGroup:
    """The partitions of one group only, because each may have many."""
    group = lag.group
    made = groups_pb2.GroupList.KafkaGroup(
        name=group.name, unreadable=group.stored is None, last_active_at=group.active_at
    )
    if lag.messages is not None:
        made.lag = lag.messages
    if managed.topic is not None:
        made.committed_at = group.committed_at.get(managed.topic.uid, 0)
    if group.name == described and lag.partitions is not None:
        made.partitions.extend(
            groups_pb2.GroupList.KafkaPartition(partition=at, committed=committed, end=end)
            for at, (committed, end) in lag.partitions.items()
        )
    return made


def _require_group_name(group: str) -> None:
    if not group:
        raise InvalidRequest("a group needs a name")
    check_name("a group's name", group)
