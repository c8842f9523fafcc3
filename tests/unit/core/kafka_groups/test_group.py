"""The rules of Kafka's group coordinator, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.kafka_groups.group import GroupState, KafkaGroup
from smq_core.kafka_groups.group_errors import GroupError
from smq_core.kafka_groups.requests import (
    Answer,
    GroupSettings,
    JoinAnswer,
    JoinRequest,
    Protocol,
    SyncAnswer,
    SyncRequest,
)
from smq_core.model.entities import SECOND

SETTINGS = GroupSettings(initial_rebalance_delay=0, max_members=4)
SESSION, REBALANCE = 10 * SECOND, 60 * SECOND


class Driver:
    """A group whose generations are stored at once, unless ``stores`` is false."""

    def __init__(self, settings: GroupSettings = SETTINGS, generation: int = 0) -> None:
        self.group = KafkaGroup(settings, generation)
        self.now = 0
        self.stores = True
        self.answers: dict[int, Answer] = {}
        self._tickets = 0

    def collect(self) -> None:
        if self.stores and self.group.has_to_store:
            self.group.stored(self.group.generation_to_store, self.now)
        for ticket, answer in self.group.take_answers():
            assert ticket not in self.answers, "answered twice"
            self.answers[ticket] = answer

    def join(self, name: str, *, known: bool = False, **changes: object) -> int:
        request = JoinRequest(
            member_id=name if known else "",
            new_id=name,
            protocol_type="consumer",
            protocols=(Protocol("range", name.encode()),),
            session_timeout=SESSION,
            rebalance_timeout=REBALANCE,
            must_know_its_id=False,
        )
        self._tickets += 1
        self.group.join(self._tickets, replace(request, **changes), self.now)
        self.collect()
        return self._tickets

    def sync(self, name: str, assignments: dict[str, bytes] | None = None, **changes: object) -> int:
        request = SyncRequest(member_id=name, generation=self.group.generation, assignments=assignments or {})
        self._tickets += 1
        self.group.sync(self._tickets, replace(request, **changes), self.now)
        self.collect()
        return self._tickets

    def heartbeat(self, name: str, instance: str | None = None, generation: int | None = None) -> GroupError:
        return self.group.heartbeat(name, instance, generation or self.group.generation, self.now)

    def tick(self, seconds: float) -> list[str]:
        self.now += int(seconds * SECOND)
        gone = self.group.tick(self.now)
        self.collect()
        return gone

    def leave(self, name: str, instance: str | None = None) -> GroupError:
        error = self.group.leave(name, instance, self.now)
        self.collect()
        return error

    def joined(self, ticket: int) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def assigned(self, ticket: int) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer


def stable(*names: str, instances: bool = False) -> Driver:
    """A group in which each member has the assignment ``<leader's> for <name>``; the first one leads."""
    it = Driver(replace(SETTINGS, initial_rebalance_delay=SECOND))
    for name in names:
        it.join(name, instance_id=f"i-{name}" if instances else None)
    for _ in names:  # each member that came after the first one extends the wait
        it.tick(1)
    for name in reversed(names):
        it.sync(name, {one: f"for {one}".encode() for one in names} if name == names[0] else None)
    assert it.group.state is GroupState.STABLE
    return it


def test_the_leader_gets_all_members_and_each_member_its_assignment() -> None:
    it = Driver(replace(SETTINGS, initial_rebalance_delay=SECOND))
    a, b = it.join("a"), it.join("b")
    assert it.answers == {}
    it.tick(1)
    it.tick(1)
    assert it.joined(a).generation == it.joined(b).generation == 1
    assert it.joined(a).leader == it.joined(b).leader == "a"
    assert [(m.id, m.metadata) for m in it.joined(a).members] == [("a", b"a"), ("b", b"b")]
    assert it.joined(b).members == ()
    late = it.sync("b")
    assert late not in it.answers
    lead = it.sync("a", {"a": b"1", "b": b"2"})
    assert (it.assigned(lead).assignment, it.assigned(late).assignment) == (b"1", b"2")
    assert it.assigned(it.sync("b")).assignment == b"2"


def test_no_member_learns_of_a_generation_that_is_not_stored() -> None:
    it = Driver(generation=41)
    it.stores = False
    ticket = it.join("a")
    assert it.group.generation_to_store == 42 and ticket not in it.answers
    assert it.group.next_deadline() == SETTINGS.new_member_timeout
    it.stores = True
    it.collect()
    it.collect()
    assert it.joined(ticket).generation == 42


def test_members_join_again_if_the_generation_cannot_be_stored() -> None:
    it = Driver()
    it.stores = False
    unknown, known = it.join("a"), it.join("b", must_know_its_id=True)
    assert it.joined(known).error is GroupError.MEMBER_ID_REQUIRED
    known = it.join("b", known=True)
    it.group.store_failed(it.now)
    it.collect()
    assert it.joined(unknown).error is it.joined(known).error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert set(it.group.members.by_id) == {"b"}
    it.stores = True
    again = it.join("b", known=True)
    it.collect()
    assert it.joined(again).generation == 1


def test_a_new_member_joins_with_the_id_that_it_was_given() -> None:
    it = Driver()
    first = it.join("a", must_know_its_id=True)
    assert it.joined(first) == JoinAnswer(error=GroupError.MEMBER_ID_REQUIRED, member_id="a")
    assert it.joined(it.join("a", known=True)).generation == 1
    assert it.joined(it.join("z", known=True)).error is GroupError.UNKNOWN_MEMBER_ID


def test_an_id_that_is_not_used_expires() -> None:
    it = Driver()
    it.join("a", must_know_its_id=True)
    assert not it.group.is_idle
    it.tick(10)
    assert it.group.is_idle
    assert it.joined(it.join("a", known=True)).error is GroupError.UNKNOWN_MEMBER_ID


def test_a_member_that_sends_no_heartbeats_is_removed_and_the_others_rebalance() -> None:
    it = stable("a", "b")
    it.tick(6)
    assert it.heartbeat("a") is GroupError.NONE
    assert it.tick(5) == ["b"]
    assert it.heartbeat("a") is GroupError.REBALANCE_IN_PROGRESS
    assert it.heartbeat("b") is GroupError.UNKNOWN_MEMBER_ID
    again = it.join("a", known=True)
    assert (it.joined(again).generation, len(it.joined(again).members)) == (2, 1)


def test_who_does_not_join_again_is_removed_after_the_rebalance_timeout() -> None:
    it = stable("a", "b")
    new = it.join("c")
    it.join("a", known=True)
    for _ in range(12):
        assert it.heartbeat("b") is GroupError.REBALANCE_IN_PROGRESS
        it.tick(5)
    assert {m.id for m in it.group.members.by_id.values()} == {"a", "c"}
    assert it.joined(new).generation == 2
    assert it.heartbeat("b") is GroupError.UNKNOWN_MEMBER_ID


def test_who_does_not_sync_is_removed_after_the_rebalance_timeout() -> None:
    it = stable("a", "b")
    it.join("c")
    b = it.join("b", known=True)
    it.join("a", known=True)
    assert it.joined(b).generation == 2
    waiting = it.sync("b")
    for _ in range(12):
        for name in ("a", "c"):
            it.heartbeat(name)
        it.tick(5)
    assert it.assigned(waiting).error is GroupError.REBALANCE_IN_PROGRESS
    assert set(it.group.members.by_id) == {"b"}


def test_requests_of_another_generation_are_refused() -> None:
    it = stable("a")
    assert it.heartbeat("a", generation=7) is GroupError.ILLEGAL_GENERATION
    assert it.assigned(it.sync("a", generation=7)).error is GroupError.ILLEGAL_GENERATION
    assert it.group.check_commit("a", None, 7, it.now) is GroupError.ILLEGAL_GENERATION
    assert it.group.check_commit("a", None, 1, it.now) is GroupError.NONE
    assert it.group.check_commit("z", None, 1, it.now) is GroupError.UNKNOWN_MEMBER_ID


def test_commits_are_taken_while_members_join_and_not_before_they_know_their_assignment() -> None:
    it = stable("a", "b")
    it.join("c")
    assert it.group.state is GroupState.PREPARING
    assert it.group.check_commit("a", None, 1, it.now) is GroupError.NONE
    it.join("b", known=True)
    it.join("a", known=True)
    assert it.group.state is GroupState.COMPLETING
    assert it.group.check_commit("a", None, 2, it.now) is GroupError.REBALANCE_IN_PROGRESS


def test_programs_without_a_membership_commit_only_while_there_are_no_members() -> None:
    it = stable("a")
    assert it.group.check_commit("", None, -1, it.now) is GroupError.UNKNOWN_MEMBER_ID
    it.leave("a")
    assert it.group.check_commit("", None, -1, it.now) is GroupError.NONE
    assert it.group.check_commit("a", None, 1, it.now) is GroupError.UNKNOWN_MEMBER_ID


def test_a_static_member_that_begins_anew_keeps_its_assignment_and_fences_its_former_process() -> None:
    it = stable("a", "b", instances=True)
    again = it.join("b2", instance_id="i-b")
    assert it.joined(again).generation == 1 and it.group.state is GroupState.STABLE
    assert it.assigned(it.sync("b2", instance_id="i-b")).assignment == b"for b"
    assert it.heartbeat("b", "i-b") is GroupError.FENCED_INSTANCE_ID
    assert it.group.check_commit("b", "i-b", 1, it.now) is GroupError.FENCED_INSTANCE_ID
    assert it.joined(it.join("b", known=True, instance_id="i-b")).error is GroupError.FENCED_INSTANCE_ID
    assert it.leave("b", "i-b") is GroupError.FENCED_INSTANCE_ID
    assert it.leave("", "i-b") is GroupError.NONE


@pytest.mark.parametrize("skips", [True, False])
def test_a_static_leader_that_begins_anew_assigns_nothing(skips: bool) -> None:
    it = stable("a", "b", instances=True)
    answer = it.joined(it.join("a2", instance_id="i-a", may_skip_assignment=skips))
    assert answer.error is GroupError.NONE and answer.skip_assignment is skips
    assert (answer.leader, len(answer.members)) == (("a2", 2) if skips else ("a", 0))
    assert it.assigned(it.sync("a2", instance_id="i-a")).assignment == b"for a"


def test_a_rebalance_waits_for_absent_static_members_until_their_sessions_end() -> None:
    it = stable("a", "b", instances=True)
    assert it.tick(5) == []
    assert it.heartbeat("a", "i-a") is GroupError.NONE
    assert it.tick(6) == ["b"]
    it.join("a", known=True, instance_id="i-a")
    assert it.group.state is GroupState.COMPLETING


def test_a_join_that_is_repeated_gets_the_same_generation() -> None:
    it = stable("a", "b")
    assert it.joined(it.join("b", known=True)).generation == 1
    assert it.group.state is GroupState.STABLE
    it.join("b", known=True, protocols=(Protocol("range", b"other topics"),))
    assert it.group.state is GroupState.PREPARING


def test_a_join_that_the_client_repeats_while_it_waits_replaces_the_first_one() -> None:
    it = stable("a", "b")
    first, second = (it.join("a", known=True) for _ in range(2))
    assert it.joined(first).error is GroupError.REBALANCE_IN_PROGRESS and second not in it.answers
    it.join("b", known=True)
    assert it.joined(second).generation == 2


def test_the_protocol_is_one_that_all_support_and_most_prefer() -> None:
    it = Driver(replace(SETTINGS, initial_rebalance_delay=SECOND))
    both, turned = (Protocol("x", b""), Protocol("y", b"")), (Protocol("y", b""), Protocol("x", b""))
    tickets = [it.join(name, protocols=it_) for name, it_ in {"a": both, "b": turned, "c": turned}.items()]
    other = it.join("d", protocols=(Protocol("z", b""),))
    assert it.joined(other).error is GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert it.joined(it.join("e", protocol_type="connect")).error is GroupError.INCONSISTENT_GROUP_PROTOCOL
    for _ in tickets:
        it.tick(1)
    assert {it.joined(ticket).protocol_name for ticket in tickets} == {"y"}
    wrong = it.sync("a", protocol_name="x")
    assert it.assigned(wrong).error is GroupError.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("seconds", [5.9, 1801])
def test_a_session_timeout_out_of_range_is_refused(seconds: float) -> None:
    it = Driver()
    refused = it.join("a", session_timeout=int(seconds * SECOND))
    assert it.joined(refused).error is GroupError.INVALID_SESSION_TIMEOUT and it.group.is_idle


def test_the_number_and_the_size_of_members_are_bounded() -> None:
    it = Driver()
    for number in range(3):
        it.join(f"m{number}")
    it.join("pending", must_know_its_id=True)
    assert it.joined(it.join("one more")).error is GroupError.GROUP_MAX_SIZE_REACHED
    large = (Protocol("range", bytes(SETTINGS.max_metadata_bytes)),)
    assert it.joined(it.join("pending", known=True, protocols=large)).error is GroupError.GROUP_MAX_SIZE_REACHED
    assert len(it.group.members) == 3


def test_assignments_that_are_too_large_are_refused() -> None:
    it = Driver()
    it.join("a")
    large = it.sync("a", {"a": bytes(SETTINGS.max_assignment_bytes + 1)})
    assert it.assigned(large).error is GroupError.UNKNOWN_SERVER_ERROR
    assert it.group.state is GroupState.COMPLETING


def test_the_first_generation_waits_for_members_that_come_a_little_later() -> None:
    it = Driver(GroupSettings())
    a = it.join("a")
    it.tick(2)
    b = it.join("b")
    it.tick(1)
    assert it.answers == {}
    assert it.group.next_deadline() == 6 * SECOND
    it.tick(3)
    assert it.joined(a).generation == it.joined(b).generation == 1


def test_a_group_that_ends_answers_everybody() -> None:
    it = Driver(GroupSettings())
    ticket = it.join("a")
    it.group.end(GroupError.NOT_COORDINATOR)
    it.collect()
    assert it.joined(ticket).error is GroupError.NOT_COORDINATOR


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    it = stable("a", "b")
    waiting = it.join("a", known=True)
    assert waiting not in it.answers and it.leave("a") is GroupError.NONE
    assert it.joined(waiting).error is GroupError.UNKNOWN_MEMBER_ID
    assert it.leave("a") is GroupError.UNKNOWN_MEMBER_ID
