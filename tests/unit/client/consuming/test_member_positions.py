"""What a member of a group knows about its positions."""

from __future__ import annotations

import pytest

from smq.consuming.groups.member_positions import MemberPositions


@pytest.fixture
def member() -> MemberPositions:
    made = MemberPositions()
    made.assign({"a": 3, "b": 0})
    return made


def test_a_revoked_segment_is_kept_while_the_program_works_on_its_batch(member: MemberPositions) -> None:
    member.batch_returned("a", 5)
    assert member.keeps_revoked({"b": 0}, commits_by_itself=True)
    assert not member.keeps_revoked({"a": 3}, commits_by_itself=True), "it is still assigned"
    member.batch_finished()
    assert not member.keeps_revoked({"b": 0}, commits_by_itself=True), "the program did not want to commit it"
    assert member.keeps_revoked({"b": 0}, commits_by_itself=False), "the consumer commits it"


def test_a_batch_that_is_committed_is_not_worked_on(member: MemberPositions) -> None:
    member.batch_returned("a", 5)
    member.commit({"a": 4}, {"a": 4})
    assert member.is_processing and member.uncommitted == {"a": 5}, "a part of the batch is left"
    member.commit({"a": 5}, {"a": 5})
    assert not member.is_processing and member.uncommitted == {}


def test_what_could_not_be_committed_belongs_to_another_member(member: MemberPositions) -> None:
    member.batch_returned("a", 5)
    member.commit({"a": 5}, {})
    assert member.uncommitted == {}
    assert member.start("a", 4) == 4, "nothing is known to be committed"


def test_commits_never_go_back(member: MemberPositions) -> None:
    member.commit({"a": 9}, {"a": 9})
    member.commit({"a": 7}, {"a": 7})
    assert member.start("a", 5) == 9
    assert member.behind_commit("a", 5) == 9
    assert member.behind_commit("a", 9) is None


def test_a_program_that_went_back_stays_there_until_the_segment_is_assigned_anew(member: MemberPositions) -> None:
    member.batch_returned("a", 9)
    member.commit({"a": 9}, {"a": 9})
    member.sought("a")
    assert member.behind_commit("a", 2) is None
    member.assign({"a": 9})
    assert member.behind_commit("a", 2) is None, "it was not away"
    member.assign({"b": 0})
    member.assign({"a": 9})
    assert member.behind_commit("a", 2) == 9


def test_another_member_has_read_what_this_one_cannot_know(member: MemberPositions) -> None:
    assert member.was_read_by_another("a", 8, own=3)
    assert not member.was_read_by_another("a", 3, own=1), "it was assigned at 3, and went back"
    member.commit({"a": 8}, {"a": 8})
    assert not member.was_read_by_another("a", 8, own=1), "it has committed 8 itself, and went back"
    assert not member.was_read_by_another("a", 10, own=10)


def test_an_end_is_reached_when_it_was_returned_or_committed(member: MemberPositions) -> None:
    assert not member.has_reached("a", 5)
    member.batch_returned("a", 5)
    assert member.has_reached("a", 5) and not member.has_reached("a", 6)
    member.commit({"a": 5}, {"a": 5})
    assert member.has_reached("a", 5)


def test_revoked_segments_are_those_of_the_last_assignment(member: MemberPositions) -> None:
    assert list(member.revoked_by({"b": 0, "c": 0})) == ["a"]
