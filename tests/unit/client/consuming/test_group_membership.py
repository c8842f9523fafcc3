"""A group's member: when it gives up a segment, what it commits, and what it does when the leader fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from smq.consuming.groups import group_membership
from smq.consuming.groups.group_membership import GroupMembership
from smq_core.errors import InvalidRequest, StaleGeneration, Unavailable
from smq_proto.error_conversion import MAX_FIELD_VALUES, error_from_pb, error_to_pb
from support.in_memory.topic import GroupInMemory
from support.waiting import eventually

Join = Callable[..., GroupMembership]


class Program:
    """What the consumer tells the member: which assignments came, and whether the program still works."""

    def __init__(self) -> None:
        self.working = False
        self.assignments: list[dict[str, int]] = []
        self.failures: list[Exception] = []

    def on_assignment(self, positions: Mapping[str, int], epoch: str) -> bool:
        self.assignments.append(dict(positions))
        if self.failures:
            raise self.failures.pop(0)
        return self.working


@pytest.fixture
def leader() -> GroupInMemory:
    return GroupInMemory({"a": 0, "b": 0})


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.fixture
def join(leader: GroupInMemory, program: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[Join]:
    monkeypatch.setattr(group_membership, "RETRY_AFTER_SECONDS", 0.001)
    joined: list[GroupMembership] = []

    def make() -> GroupMembership:
        member = GroupMembership(
            groups=leader,
            topic="default/t",
            group="g",
            start="earliest",
            on_assignment=program.on_assignment,
            awaited_commits=dict,
        )  # type: ignore[arg-type]
        joined.append(member)
        # It acknowledges its first assignment, and then does nothing by itself.
        eventually(lambda: leader.acknowledged() == 1 and len(program.assignments) >= 2)
        return member

    yield make
    for member in joined:
        member.leave()


def heartbeat(member: GroupMembership, leader: GroupInMemory) -> None:
    """One more heartbeat, and those that it causes."""
    before = len(leader.requests("JoinGroup"))
    member._heartbeat()
    assert len(leader.requests("JoinGroup")) > before


def test_a_segment_whose_batch_is_still_worked_on_is_not_given_up(
    join: Join, leader: GroupInMemory, program: Program
) -> None:
    member = join()
    program.working = True
    leader.assign({"b": 0})

    for _ in range(3):
        heartbeat(member, leader)
    assert program.assignments[-1] == {"b": 0}, "the program knows"
    assert member.revocation_pending
    assert {r.generation for r in leader.requests("JoinGroup")} == {0, 1}, "and the leader is not told"

    member.acknowledge_revocation(member.applied_generation)
    eventually(lambda: leader.acknowledged() == 2)
    assert not member.revocation_pending


def test_a_second_change_while_the_first_is_worked_on_is_given_up_with_it(
    join: Join, leader: GroupInMemory, program: Program
) -> None:
    member = join()
    program.working = True
    for positions in ({"b": 0}, {}):
        leader.assign(positions)
        heartbeat(member, leader)
    assert leader.acknowledged() < 2

    member.acknowledge_revocation(member.applied_generation)
    eventually(lambda: leader.acknowledged() == 3)
    assert 2 not in {r.generation for r in leader.requests("JoinGroup")}


def test_what_nobody_works_on_is_given_up_at_once(join: Join, leader: GroupInMemory, program: Program) -> None:
    member = join()
    leader.assign({"b": 0})
    heartbeat(member, leader)
    eventually(lambda: leader.acknowledged() == 2)
    assert not member.revocation_pending


def test_an_assignment_is_not_acknowledged_before_it_is_applied(
    join: Join, leader: GroupInMemory, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = join()

    def poll_meanwhile(positions: Mapping[str, int], epoch: str) -> bool:
        member.acknowledge_revocation(member.applied_generation)
        return True

    leader.assign({"b": 0})
    with monkeypatch.context() as patch:
        patch.setattr(member, "_on_assignment", poll_meanwhile)
        heartbeat(member, leader)
    program.working = True
    heartbeat(member, leader)
    assert leader.acknowledged() == 1 and member.revocation_pending


def test_an_acknowledgement_that_changes_nothing_sends_nothing(join: Join, leader: GroupInMemory) -> None:
    member = join()
    before = len(leader.requests("JoinGroup"))
    for _ in range(10):
        member.acknowledge_revocation(member.applied_generation)
    assert not member._wake.is_set() and len(leader.requests("JoinGroup")) == before


def test_an_assignment_that_cannot_be_applied_is_not_acknowledged(
    join: Join, leader: GroupInMemory, program: Program
) -> None:
    member = join()
    program.failures = [RuntimeError("the program's fault")]
    leader.assign({"b": 0})
    heartbeat(member, leader)
    heartbeat(member, leader)
    assert leader.acknowledged() == 1 and member.revocation_pending


def test_a_commit_leaves_out_what_belongs_to_others_and_tries_the_rest_again(join: Join, leader: GroupInMemory) -> None:
    member = join()
    leader.assign({"b": 0})
    leader.failures["CommitPositions"] = [StaleGeneration("moved", segments=("a", "x"))]

    assert member.commit({"a": 5, "b": 6}, {}, "first").positions == {"b": 6}
    assert leader.committed == {"b": 6}
    assert [dict(r.positions) for r in leader.requests("CommitPositions")] == [{"a": 5, "b": 6}, {"b": 6}]


def test_a_commit_leaves_out_any_number_of_others_segments(join: Join, leader: GroupInMemory) -> None:
    member = join()
    leader.assign({"b": 0})
    lost = [f"t-0-1024-{number}" for number in range(200)]
    errors = [StaleGeneration("moved", segments=tuple(lost[at:])) for at in range(0, len(lost), MAX_FIELD_VALUES)]
    leader.failures["CommitPositions"] = [error_from_pb(error_to_pb(it)) for it in errors]
    assert member.commit({"b": 6, **dict.fromkeys(lost, 1)}, {}, "first").positions == {"b": 6}
    assert leader.committed == {"b": 6}


def test_a_commit_of_nothing_but_others_segments_commits_nothing(join: Join, leader: GroupInMemory) -> None:
    member = join()
    leader.assign({"b": 0})
    leader.failures["CommitPositions"] = [StaleGeneration("moved", segments=("a",))]
    assert member.commit({"a": 5}, {}, "first").positions == {}
    assert leader.committed == {} and len(leader.requests("CommitPositions")) == 1


def test_a_commit_of_a_member_that_the_leader_forgot_joins_again_and_is_made(join: Join, leader: GroupInMemory) -> None:
    member = join()
    before = len(leader.requests("JoinGroup"))
    leader.failures["CommitPositions"] = [StaleGeneration("join again")]
    assert member.commit({"a": 5}, {}, "first").positions == {"a": 5} == leader.committed
    assert len(leader.requests("JoinGroup")) > before


def test_a_commit_that_is_named_as_too_old_is_made_if_the_segment_is_assigned_again(
    join: Join, leader: GroupInMemory
) -> None:
    member = join()
    leader.assign({"a": 0, "b": 0})
    leader.failures["CommitPositions"] = [StaleGeneration("assigned later", segments=("a",))]
    assert member.commit({"a": 5}, {}, "first").positions == {"a": 5}
    assert [r.generation for r in leader.requests("CommitPositions")] == [1, 2]


def test_what_was_read_before_a_reset_is_not_committed_after_the_member_has_learned_of_it(
    join: Join, leader: GroupInMemory
) -> None:
    member = join()
    leader.reset({"a": 0})
    heartbeat(member, leader)
    assert member.commit({"a": 5}, {}, "first").positions == {} == leader.committed


def test_a_commit_that_is_always_refused_raises(join: Join, leader: GroupInMemory) -> None:
    member = join()
    leader.failures["CommitPositions"] = [StaleGeneration("join again")] * 100
    with pytest.raises(Unavailable, match="commit again"):
        member.commit({"a": 5}, {}, "first")


def test_a_commit_carries_the_generation_that_was_last_received(
    join: Join, leader: GroupInMemory, program: Program
) -> None:
    member = join()
    program.working = True
    leader.assign({"b": 0})
    heartbeat(member, leader)
    member.commit({"a": 5}, {}, "first")
    assert leader.requests("CommitPositions")[-1].generation == 2


def test_a_commit_that_nobody_answers_raises(join: Join, leader: GroupInMemory) -> None:
    member = join()
    leader.failures["CommitPositions"] = [Unavailable("no leader")]
    with pytest.raises(Unavailable):
        member.commit({"a": 5}, {}, "first")
    assert member.commit({"a": 5}, {}, "first").positions == {"a": 5}


def test_a_heartbeat_that_nobody_answers_is_sent_again_with_the_same_generation(
    join: Join, leader: GroupInMemory
) -> None:
    leader.failures["JoinGroup"] = [Unavailable("no leader")] * 3
    member = join()
    assert member.joined
    assert [r.generation for r in leader.requests("JoinGroup")] == [0, 0, 0, 0, 1]
    assert len({r.member for r in leader.requests("JoinGroup")}) == 1


def test_a_group_that_is_refused_raises_and_a_member_that_is_refused_later_knows_why(
    join: Join, leader: GroupInMemory
) -> None:
    leader.failures["JoinGroup"] = [InvalidRequest("no such name")]
    with pytest.raises(InvalidRequest, match="no such name"):
        join()
    member = join()
    leader.failures["JoinGroup"] = [InvalidRequest("gone")]
    heartbeat(member, leader)
    assert str(member.failure) == "gone"
    heartbeat(member, leader)
    assert member.failure is None


def test_a_member_that_has_left_sends_nothing_more(join: Join, leader: GroupInMemory) -> None:
    leader.failures["LeaveGroup"] = [Unavailable("no leader")]
    member = join()
    member.leave()
    calls = len(leader.calls)
    assert leader.calls[-1][0] == "LeaveGroup"
    member.heartbeat_now()
    assert not member._thread.is_alive() and len(leader.calls) == calls
