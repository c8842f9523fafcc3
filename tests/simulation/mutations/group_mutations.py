"""Mutations of what a group's members and its leader keep, which histories of groups must detect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from simulation.mutations.mutation_table import MutationTable, Patch
from smq.consuming.groups.ended_segments import EndedSegments
from smq.consuming.groups.member_positions import MemberPositions
from smq_core.reading.consumer_group import Group
from smq_operator.cleanup import garbage_collection, retention
from smq_operator.cleanup.garbage_collection import GarbageCollector
from smq_operator.groups.group_changes import GroupChanges
from smq_operator.groups.segment_reach import SegmentReach
from smq_storage.catalog import group_positions
from smq_storage.catalog.group_positions import CommittedPositions
from support.sim.clients.group_program import GroupProgram

MUTATIONS, RESETS = MutationTable(), MutationTable()
mutation = MUTATIONS.add

# Long enough for a group to begin anew meanwhile, in many histories.
PAUSE_SECONDS = 3


@mutation
def keep_the_epoch_of_positions_that_are_set(patch: Patch) -> None:
    """Positions that an administrator sets begin a new epoch."""
    original = GroupChanges._changed

    def changed(self: GroupChanges, managed: Any, name: str, positions: Any, stored: CommittedPositions) -> Any:
        return replace(original(self, managed, name, positions, stored), epoch=stored.epoch)

    patch.setattr(GroupChanges, "_changed", changed)


@mutation
def give_a_group_the_epoch_of_a_deleted_one(patch: Patch) -> None:
    """A group that is made again after its deletion has another epoch, so that members of before go back."""
    original = group_positions.read_positions

    def read_positions(store: Any, topic: str, uid: str, group: str) -> tuple[CommittedPositions, str | None]:
        stored, etag = original(store, topic, uid, group)
        return (replace(stored, deleted=False, epoch="first") if stored.deleted else stored), etag

    patch.setattr(group_positions, "read_positions", read_positions)


@mutation
def accept_what_nobody_can_have_read(patch: Patch) -> None:
    """A leader refuses a position beyond what can have been read, whatever client sends it."""

    async def check_read(self: SegmentReach, managed: Any, positions: Any) -> None:
        return None

    patch.setattr(SegmentReach, "check_read", check_read)


@mutation
def refuse_what_the_last_report_does_not_have(patch: Patch) -> None:
    """Members commit what was delivered since the last report, so the leader asks the replicas for that."""

    async def poll(self: SegmentReach, managed: Any, segments: Any) -> dict[str, int]:
        return {segment.name: managed.reconciler.watermarks.get(segment.name, 0) for segment in segments}

    patch.setattr(SegmentReach, "poll", poll)


@mutation
def take_uncommitted_positions_into_another_epoch(patch: Patch) -> None:
    """A member forgets its positions when those of its group were set."""

    def reset(self: MemberPositions, epoch: str) -> None:
        self.epoch = epoch

    patch.setattr(MemberPositions, "reset", reset)


@RESETS.add
def take_ended_segments_into_another_epoch(patch: Patch) -> None:
    """A segment that is read again after a reset has not ended for its member."""
    patch.setattr(EndedSegments, "read_again", lambda self, segments: None)


@mutation
def give_up_a_refused_commit(patch: Patch) -> None:
    """A refused commit is made after the member has joined again."""

    def joins_again(self: GroupProgram, refused: Mapping[str, int]) -> bool:
        self.positions.commit(refused, {})
        self.ended.committed(refused)
        return False

    patch.setattr(GroupProgram, "joins_again", joins_again)


@mutation
def commit_what_was_not_given(patch: Patch) -> None:
    """A position beyond what a consumer has returned is refused."""

    def committable(
        self: MemberPositions, positions: Mapping[str, int], current: Callable[[str], int]
    ) -> dict[str, int]:
        return dict(positions)

    patch.setattr(MemberPositions, "committable", committable)


@mutation
def never_commit_a_segment_that_has_ended(patch: Patch) -> None:
    """With ``auto_commit="segment_end"`` the end of a segment is committed, because its successors wait for that."""
    patch.setattr(EndedSegments, "ends", {})


@mutation
def forget_the_epoch_when_another_leader_serves_the_group(patch: Patch) -> None:
    """A leader that loads a group keeps its epoch, so that members go on where they are."""
    original = Group.__init__

    def init(self: Group, *values: object, epoch: str = "", **fields: object) -> None:
        original(self, *values, **fields)  # type: ignore[arg-type]

    patch.setattr(Group, "__init__", init)


@RESETS.add
def read_the_groups_before_what_expires(patch: Patch) -> None:
    """Retention knows every group that has begun before the time by which it judges, also after a pause."""

    async def read_state(self: GarbageCollector, managed: Any, topic: Any) -> Any:
        groups = await self._groups.states(managed, topic)
        await asyncio.sleep(PAUSE_SECONDS)
        return await self._filer_clock.read(), None, groups

    def remove_expired(store: Any, topic: Any, known: Any, *more: Any) -> Any:
        return retention.remove_expired(store, topic, retention.read_consistent(store, topic), *more)

    patch.setattr(GarbageCollector, "_read_state", read_state)
    patch.setattr(garbage_collection, "remove_expired", remove_expired)
