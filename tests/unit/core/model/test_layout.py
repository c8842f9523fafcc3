"""Transitions of the layout: the ring stays covered, and segments leave in an order that readers can follow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.model.entities import Durability, Layout, Phase, Reason, Replica, segment_name
from smq_core.model.keyspace import KeyRange, merge_ranges, split_evenly
from smq_core.model.layout_transitions import SealPlan, Successor, activatable, activate, create, plan, validated

REPLICAS = (Replica("b1", "i1", "h:1"), Replica("b2", "i2", "h:2"))


def part(start: int, stop: int) -> Successor:
    return Successor(KeyRange(start, stop), REPLICAS, Durability.REPLICATED)


def fresh(partitions: int = 16, parts: int = 1) -> Layout:
    ranges = split_evenly(KeyRange(0, partitions), parts)
    return create("ns/t", "uid", partitions, [part(r.start, r.stop) for r in ranges], now=5, writer="w0")


def seal(*names: str, into: list[Successor], reason: Reason = Reason.SPLIT) -> SealPlan:
    return SealPlan(names, reason, tuple(into))


def names(layout: Layout, phase: Phase) -> list[str]:
    return [s.name for s in layout.segments if s.phase is phase]


def test_the_first_layout_is_open_and_covers_the_ring():
    layout = fresh(16, 3)
    assert [s.name for s in layout.segments] == ["t-0-5-0", "t-5-10-1", "t-10-16-2"]
    assert all(s.phase is Phase.OPEN and s.opened_at == 5 and not s.predecessors for s in layout.segments)
    assert (layout.version, layout.next_number, layout.writer) == (1, 3, "w0")


def test_parts_that_do_not_cover_the_ring_are_refused():
    with pytest.raises(ValueError, match="do not cover"):
        create("ns/t", "uid", 16, [part(0, 8)], now=0, writer="w")


def test_a_split_adds_pending_successors_and_opens_them_when_it_is_sealed():
    layout = fresh()
    split = plan(layout, [seal("t-0-16-0", into=[part(0, 8), part(8, 16)])], now=9, writer="w1")
    assert names(split, Phase.SEALING) == ["t-0-16-0"]
    assert names(split, Phase.PENDING) == ["t-0-8-1", "t-8-16-2"]
    old = split.segment("t-0-16-0")
    assert (old.successors, old.sealed_because) == (("t-0-8-1", "t-8-16-2"), Reason.SPLIT)
    assert split.segment("t-0-8-1").predecessors == ("t-0-16-0",)
    done = activate(split, ["t-0-16-0"], writer="w2")
    assert names(done, Phase.OPEN) == ["t-0-8-1", "t-8-16-2"] and len(done.segments) == 2
    assert (done.version, done.writer) == (3, "w2")


def test_a_merge_waits_for_all_its_predecessors():
    layout = plan(fresh(16, 2), [seal("t-0-8-0", "t-8-16-1", into=[part(0, 16)])], now=1, writer="w")
    assert activatable(layout, ["t-0-8-0"]) == set()
    assert activate(layout, ["t-0-8-0"], writer="w").segments == layout.segments
    done = activate(layout, ["t-0-8-0", "t-8-16-1"], writer="w")
    assert names(done, Phase.OPEN) == ["t-0-16-2"]
    assert done.segment("t-0-16-2").predecessors == ("t-0-8-0", "t-8-16-1")


def test_a_pending_segment_can_be_planned_away():
    layout = plan(fresh(), [seal("t-0-16-0", into=[part(0, 16)])], now=1, writer="w")
    again = plan(layout, [seal("t-0-16-1", into=[part(0, 16)], reason=Reason.FAILOVER)], now=2, writer="w")
    assert again.segment("t-0-16-1").phase is Phase.PENDING
    assert activatable(again, ["t-0-16-1"]) == set(), "not before its own predecessor has left"
    first = activate(again, ["t-0-16-0"], writer="w")
    assert first.segment("t-0-16-1").phase is Phase.SEALING
    second = activate(first, ["t-0-16-1"], writer="w")
    assert names(second, Phase.OPEN) == ["t-0-16-2"]


def test_a_segment_is_planned_once():
    layout = plan(fresh(), [seal("t-0-16-0", into=[part(0, 16)])], now=1, writer="w")
    with pytest.raises(ValueError, match="already planned"):
        plan(layout, [seal("t-0-16-0", into=[part(0, 16)])], now=2, writer="w")


@pytest.mark.parametrize("into", [[part(0, 8)], [part(0, 8), part(9, 16)], [part(0, 9), part(8, 16)]])
def test_successors_must_cover_exactly_what_is_sealed(into):
    with pytest.raises(ValueError, match="do not cover"):
        plan(fresh(), [seal("t-0-16-0", into=into)], now=1, writer="w")


def test_only_neighbours_merge():
    with pytest.raises(ValueError, match="adjacent"):
        plan(fresh(16, 4), [seal("t-0-4-0", "t-8-12-2", into=[part(0, 12)])], now=1, writer="w")


def test_a_segment_that_is_not_there_cannot_be_planned():
    with pytest.raises(KeyError):
        plan(fresh(), [seal("t-0-16-9", into=[part(0, 16)])], now=1, writer="w")


def test_an_outcome_that_is_newer_than_the_layout_takes_nothing_out():
    assert activatable(fresh(), ["t-0-16-0", "unknown"]) == set()


def test_a_hole_is_seen():
    layout = fresh(16, 2)
    with pytest.raises(ValueError, match="do not cover"):
        validated(replace(layout, segments=layout.segments[:1]))


def test_names_lack_the_namespace_and_are_never_used_again():
    assert segment_name("travel/flights", KeyRange(0, 1024), 7) == "flights-0-1024-7"


@given(data=st.data())
def test_any_history_of_splits_merges_and_rolls_covers_the_ring(data):
    layout = fresh(16, data.draw(st.integers(1, 4)))
    seen = {s.name for s in layout.segments}
    left: dict[str, tuple[str, ...]] = {}
    for step in range(data.draw(st.integers(1, 12))):
        free = sorted((s for s in layout.segments if not s.successors), key=lambda s: s.range)
        at = data.draw(st.integers(0, len(free) - 1))
        run = [free[at]]
        if data.draw(st.booleans()):
            while len(run) < 3 and at + len(run) < len(free) and free[at + len(run)].range.start == run[-1].range.stop:
                run.append(free[at + len(run)])
        whole = merge_ranges(s.range for s in run)
        parts = split_evenly(whole, data.draw(st.integers(1, min(3, len(whole)))))
        into = [part(r.start, r.stop) for r in parts]
        before = layout
        layout = plan(layout, [seal(*(s.name for s in run), into=into)], now=step, writer=f"p{step}")
        new = {s.name for s in layout.segments} - {s.name for s in before.segments}
        assert not new & seen, "a name is used once"
        seen |= new
        sealed = data.draw(st.sets(st.sampled_from([s.name for s in layout.segments if s.successors])))
        for name in activatable(layout, sealed):
            left[name] = layout.segment(name).predecessors
        layout = activate(layout, sealed, writer=f"a{step}")
        validated(layout)
        assert not left.keys() & {s.name for s in layout.segments}
        for predecessors in left.values():
            assert set(predecessors) <= left.keys(), "nobody leaves before those who came before"
    everything = [s.name for s in layout.segments if s.successors]
    while everything:
        layout = activate(layout, everything, writer="end")
        rest = [s.name for s in layout.segments if s.successors]
        assert rest != everything or not rest, "in the end all that is sealed leaves"
        everything = rest
    assert all(s.phase is Phase.OPEN for s in layout.segments)
