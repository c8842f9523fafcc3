"""Who owns what in a consumer group, and when it changes hands."""

import pytest

from smq_core.errors import StaleGeneration
from smq_core.reading.consumer_group import HANDOVER_TIMEOUT, MEMBER_TIMEOUT, Group
from smq_core.reading.segment_dag import ReadProgress, SegmentNode

SECOND = 1_000_000


def nodes(*found: SegmentNode) -> dict[str, SegmentNode]:
    return {node.name: node for node in found}


def open_segments(count: int) -> dict[str, SegmentNode]:
    return nodes(*(SegmentNode(f"s{i}", ()) for i in range(count)))


def durable_commit(group: Group, member: str, positions: dict[str, int], now: int = 0) -> None:
    group.commit(member, group.generation, positions)
    group.begin_flush()
    group.flushed(now)


def test_one_member_gets_everything_that_may_be_read():
    group = Group(name="g")
    group.update(open_segments(3), 0)
    assert group.join("a", 0).positions == {"s0": 0, "s1": 0, "s2": 0}


def test_a_successor_is_assigned_only_when_its_predecessors_are_committed_durably():
    group = Group(name="g")
    group.update(nodes(SegmentNode("old", (), end=10), SegmentNode("new", ("old",))), 0)
    assert group.join("a", 0).positions == {"old": 0}
    group.commit("a", group.generation, {"old": 10})
    assert group.join("a", 0).positions == {"old": 0}, "taken, but not in the filer yet"
    group.begin_flush()
    group.flushed(0)
    assert group.join("a", 0).positions == {"new": 0}


def test_a_second_member_gets_its_share_when_the_first_has_released_it():
    group = Group(name="g")
    group.update(open_segments(2), 0)
    group.join("a", 0)
    assert group.join("b", 0).positions == {}
    joined = group.join("a", 0)
    assert joined.positions == {"s0": 0}, "s1 is missing now, but a may still commit it"
    group.commit("a", joined.generation - 1, {"s1": 7})
    group.begin_flush()
    group.flushed(0)
    assert group.join("b", 0).positions == {}
    group.join("a", 0, joined.generation)
    assert group.join("b", 0).positions == {"s1": 7}


def test_a_handover_without_an_answer_ends_by_time():
    group = Group(name="g")
    group.update(open_segments(2), 0)
    old = group.join("a", 0)
    group.join("b", 0)
    group.join("a", HANDOVER_TIMEOUT - 1)
    group.join("b", HANDOVER_TIMEOUT - 1)
    group.expire(HANDOVER_TIMEOUT)
    assert group.join("b", HANDOVER_TIMEOUT).positions == {"s1": 0}
    with pytest.raises(StaleGeneration) as raised:
        group.commit("a", old.generation, {"s0": 1, "s1": 1})
    assert raised.value.segments == ("s1",)
    assert group.positions == {} and not group.pending, "nothing of a refused commit is taken"


def test_a_segment_is_not_handed_on_while_a_commit_of_it_is_being_written():
    group = Group(name="g")
    group.update(open_segments(1), 0)
    group.join("a", 0)
    group.join("b", 0)
    group.commit("a", group.generation, {"s0": 5})
    group.begin_flush()
    group.leave("a", 0)
    assert group.join("b", 0).positions == {}
    group.flushed(0)
    assert group.join("b", 0).positions == {"s0": 5}


def test_a_write_that_failed_is_written_again():
    group = Group(name="g")
    group.update(open_segments(1), 0)
    group.join("a", 0)
    assert group.commit("a", group.generation, {"s0": 5})
    assert group.begin_flush() == {"s0": 5}
    group.commit("a", group.generation, {"s0": 8})
    group.flush_failed()
    assert group.positions == {}
    assert group.begin_flush() == {"s0": 8}
    group.flushed(0)
    assert group.positions == {"s0": 8}


def test_a_commit_that_says_nothing_new_needs_no_write():
    group = Group(name="g")
    group.update(open_segments(1), 0)
    group.join("a", 0)
    durable_commit(group, "a", {"s0": 5})
    assert not group.commit("a", group.generation, {"s0": 5})
    assert not group.commit("a", group.generation, {"s0": 3})
    assert group.commit("a", group.generation, {"s0": 6})
    assert group.commit("a", group.generation, {"s0": 6}), "it is not durable yet: whoever repeats it has to wait"


def test_the_commit_that_finished_a_segment_may_be_repeated():
    group = Group(name="g")
    group.update(nodes(SegmentNode("s0", (), end=4), SegmentNode("s1", ("s0",))), 0)
    group.join("a", 0)
    durable_commit(group, "a", {"s0": 4})
    assert not group.commit("a", group.generation, {"s0": 4}), "its answer may have been lost"


@pytest.mark.parametrize("generation", [-1, +1])
def test_commits_of_another_generation_than_the_tenure_are_refused(generation):
    group = Group(name="g", generation=1000)
    group.update(open_segments(1), 0)
    group.join("a", 0)
    wrong = 1000 if generation < 0 else group.generation + 1
    with pytest.raises(StaleGeneration):
        group.commit("a", wrong, {"s0": 1})


def test_only_members_can_commit():
    group = Group(name="g")
    group.update(open_segments(1), 0)
    with pytest.raises(StaleGeneration, match="join again"):
        group.commit("a", 0, {"s0": 1})


def test_an_unresponsive_member_leaves_and_its_segments_are_reassigned():
    group = Group(name="g")
    group.update(open_segments(2), 0)
    group.join("a", 0)
    group.join("b", MEMBER_TIMEOUT)
    assert group.expire(MEMBER_TIMEOUT + 1) == ["a"]
    assert set(group.join("b", MEMBER_TIMEOUT + 1).positions) == {"s0", "s1"}


def test_a_generation_of_an_earlier_leader_lets_nothing_go():
    group = Group(name="g", generation=1000)
    group.update(open_segments(2), 0)
    group.join("a", 0, 999)
    group.join("b", 0)
    group.join("a", 0, 5000)
    assert group.join("b", 0).positions == {}


def test_members_are_evened_out_with_as_few_moves_as_can_be():
    group = Group(name="g")
    group.update(open_segments(6), 0)
    for name in ("a", "b"):
        group.join(name, 0)
    for _ in range(3):
        for name in ("a", "b"):
            group.join(name, 0, group.members[name].last_generation)
    before = dict(group.assignment)
    group.join("c", 0)
    for _ in range(3):
        for name in ("a", "b", "c"):
            group.join(name, 0, group.members[name].last_generation)
    after = group.assignment
    assert sorted(list(after.values()).count(m) for m in "abc") == [2, 2, 2]
    assert sum(before[s] != after[s] for s in after) == 2


def test_nothing_moves_while_nothing_changes():
    group = Group(name="g")
    group.update(open_segments(5), 0)
    for _ in range(4):
        for name in ("a", "b"):
            group.join(name, 0, group.members[name].last_generation if name in group.members else None)
    generation = group.generation
    for round_ in range(5):
        for name in ("a", "b"):
            group.join(name, round_ * SECOND, group.members[name].last_generation)
    assert group.generation == generation


def test_segments_that_retention_removed_are_not_assigned():
    group = Group(name="g")
    group.update(nodes(SegmentNode("s0", (), end=4), SegmentNode("s1", ("s0",))), 0)
    group.update(nodes(SegmentNode("s1", ("s0",))), 0)
    assert group.join("a", 0).positions == {"s1": 0}


def test_a_position_beyond_an_end_counts_as_read_after_a_loss():
    group = Group(name="g", reader=ReadProgress(positions={"s0": 9}))
    group.update(nodes(SegmentNode("s0", ())), 0)
    group.update(nodes(SegmentNode("s0", (), end=4), SegmentNode("s1", ("s0",))), 0)
    assert group.join("a", 0).positions == {"s1": 0}
    assert group.positions["s0"] == 9, "it does not go back"


def test_a_pause_of_the_leader_counts_neither_for_members_nor_for_handovers():
    group = Group(name="g")
    group.update(open_segments(2), 0)
    group.join("a", 0)
    group.join("b", 0)
    (segment,) = group.handovers
    group.compensate_pause(MEMBER_TIMEOUT * 10)
    late = MEMBER_TIMEOUT * 10
    assert group.expire(late + HANDOVER_TIMEOUT - 1) == [] and segment in group.handovers
    assert group.expire(late + HANDOVER_TIMEOUT) == [] and not group.handovers
    assert group.expire(late + MEMBER_TIMEOUT + 1) == ["a", "b"]
