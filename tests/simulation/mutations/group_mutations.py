"""Mutations of what a group's members and its leader keep, which histories of groups must detect."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulation.mutations.mutation_table import MutationTable, Patch
from smq.consuming.groups.ended_segments import EndedSegments
from smq.consuming.groups.member_positions import MemberPositions
from smq_core.reading.consumer_group import Group
from support.sim.clients.group_program import GroupProgram
from support.sim.leaders.group_host import GroupHost

MUTATIONS = MutationTable()
mutation = MUTATIONS.add


@mutation
def keep_the_epoch_of_positions_that_are_set(patch: Patch) -> None:
    """Positions that an administrator sets begin a new epoch."""
    patch.setattr(GroupHost, "new_epoch", lambda self, before: before)


@mutation
def take_uncommitted_positions_into_another_epoch(patch: Patch) -> None:
    """A member forgets its positions when those of its group were set."""

    def reset(self: MemberPositions, epoch: str) -> None:
        self.epoch = epoch

    patch.setattr(MemberPositions, "reset", reset)


@mutation
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
