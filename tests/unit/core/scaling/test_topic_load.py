from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.model.entities import SECOND, Durability, Layout, Reason, Replica, TopicSpec
from smq_core.model.keyspace import KeyRange, split_evenly
from smq_core.model.layout_transitions import SealPlan, Successor, create, plan
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.scaling.placement import BrokerView
from smq_core.scaling.segment_load import MeasuredLoad, TrafficCounters
from smq_core.scaling.topic_load import TopicLoad

SPEC = TopicSpec(partitions=64, target_messages_per_second=1_000, merge_after=30 * SECOND)
A, B, C = (Replica(n, n, "") for n in "abc")


def layout_of(parts: int, *replicas: Replica) -> Layout:
    successors = [Successor(r, replicas, Durability.REPLICATED) for r in split_evenly(KeyRange(0, 64), parts)]
    return create("default/t", "uid", 64, successors, now=0, writer="w")


def alive(*replicas: Replica) -> dict[str, BrokerView]:
    return {r.incarnation: BrokerView(replica=r) for r in replicas}


def report(load: TopicLoad, layout: Layout, seconds: range, *rates: int) -> None:
    for second in seconds:
        for segment, rate in zip(layout.segments, rates, strict=False):
            load.observe(segment.name, TrafficCounters(rate * second, rate * second, 1), second * SECOND)


def test_a_segment_that_is_being_changed_does_not_stop_the_others() -> None:
    layout, load = layout_of(4, A, B), TopicLoad()
    busy = SealPlan(
        (layout.segments[0].name,), Reason.ROLL, (Successor(KeyRange(0, 16), (A, B), Durability.REPLICATED),)
    )
    layout = plan(layout, [busy], now=0, writer="w")
    found: list[SegmentChange] = []
    for second in range(12):
        report(load, layout, range(second, second + 1), 0, 100, 100, 5_000)
        found += load.changes(SPEC, layout, alive(A, B), second * SECOND)
    splits = [c for c in found if c.action is SegmentAction.SPLIT]
    assert splits and {name for s in splits for name in s.segments} == {layout.segments[3].name}


def test_only_neighbours_are_merged() -> None:
    """The one between them is being changed."""
    layout, load = layout_of(3, A, B), TopicLoad()
    middle = layout.segments[1]
    roll = SealPlan((middle.name,), Reason.ROLL, (Successor(middle.range, (A, B), Durability.REPLICATED),))
    changing = plan(layout, [roll], now=0, writer="w")
    found: list[SegmentChange] = []
    for second in range(60):
        report(load, layout, range(second, second + 1), 10, 10, 10)
        found += load.changes(SPEC, changing, alive(A, B), second * SECOND)
    assert not [c for c in found if c.action is SegmentAction.MERGE]


def test_what_only_moves_keeps_its_quiet() -> None:
    """Drains and rolls in the meantime do not put a merge off for ever."""
    layout, load = layout_of(2, A, B), TopicLoad()
    for second in range(25):
        report(load, layout, range(second, second + 1), 10, 10)
        assert not load.changes(SPEC, layout, alive(A, B), second * SECOND)
    plans = [SealPlan((s.name,), Reason.DRAIN, (Successor(s.range, (B, C), s.durability),)) for s in layout.segments]
    moving = plan(layout, plans, now=25 * SECOND, writer="w")
    load.changes(SPEC, moving, alive(A, B, C), 25 * SECOND)
    opened = [s for s in moving.segments if not s.successors]
    moved = replace(moving, segments=tuple(replace(s, phase=layout.segments[0].phase) for s in opened))
    for second in range(26, 40):
        report(load, moved, range(second, second + 1), 10, 10)
        if load.changes(SPEC, moved, alive(B, C), second * SECOND):
            return
    pytest.fail("the two quiet segments were not merged")


def test_a_new_broker_gets_some_of_the_work() -> None:
    layout, load = layout_of(8, A, B), TopicLoad()
    report(load, layout, range(20), *[700] * 8)
    moves = load.changes(SPEC, layout, alive(A, B, C), 20 * SECOND)
    assert moves and all(m.replacement is not None and m.replacement[1] == C for m in moves)
    assert len(moves) <= 2, "not more than a quarter of the topic's writers at a time"
    assert not load.changes(SPEC, layout, alive(A, B, C), 21 * SECOND), "the moves have had no time to help"


def test_nothing_moves_for_a_load_that_has_ended() -> None:
    layout, load = layout_of(8, A, B), TopicLoad()
    report(load, layout, range(60), *[700] * 8)
    for second in range(60, 75):
        for segment in layout.segments:
            load.observe(segment.name, TrafficCounters(700 * 59, 700 * 59, 1), second * SECOND)
    assert not load.changes(SPEC, layout, alive(A, B, C), 75 * SECOND), "the last minute's rate is half a target still"


def test_a_falling_load_does_not_move_the_only_segment() -> None:
    """The views are a second old. What the load has lost since then is not a load of another topic."""
    layout, load, spec = layout_of(1, A), TopicLoad(), replace(SPEC, max_segments=1)
    report(load, layout, range(60), 5_000)
    for second in range(60, 75):
        views = alive(A, B)
        views["a"] = replace(views["a"], load=load.count_by_broker(spec, layout)["a"])
        load.observe(layout.segments[0].name, TrafficCounters(5_000 * 59, 5_000 * 59, 1), second * SECOND)
        assert not load.changes(spec, layout, views, second * SECOND)


def test_a_falling_rate_has_a_falling_slope() -> None:
    load, total = MeasuredLoad(), 0
    for second, rate in enumerate([1_000] * 5 + [100] * 3):
        total += rate
        load.observe(second * SECOND, TrafficCounters(total, total, total // 10))
    assert load.slope.messages < -50


def test_the_first_rate_counts_at_once() -> None:
    load = MeasuredLoad()
    load.observe(0, TrafficCounters(5_000, 50, 1))
    load.observe(SECOND, TrafficCounters(8_000, 80, 2))
    assert load.fast.messages == load.slow.messages == 3_000
    assert load.slope.messages == 0


def test_reports_close_to_each_other_give_no_first_rate() -> None:
    """A broker reports to a new leader twice in a moment, and a delayed report can arrive just before the next."""
    load = MeasuredLoad()
    load.observe(0, TrafficCounters())
    assert load.observe(SECOND // 20, TrafficCounters(1_000, 1_000, 1))
    assert not load.observed and not load.fast.messages and not load.slow.messages
    load.observe(SECOND, TrafficCounters(1_200, 1_200, 1))
    assert load.fast.messages == load.slow.messages == 200


def test_reports_that_waited_for_the_leader_give_no_first_rate() -> None:
    """A leader that was paused handles the reports of many seconds in one moment."""
    load = MeasuredLoad()
    for second in range(6):
        assert load.observe(10 * SECOND, TrafficCounters(100 * second, 100 * second, 1))
    load.observe(11 * SECOND, TrafficCounters(600, 600, 1))
    assert load.fast.messages == 100


def test_a_burst_before_a_new_leader_s_second_report_moves_nothing() -> None:
    layout, load = layout_of(8, A, B), TopicLoad()
    found: list[SegmentChange] = []
    for at in (20 * SECOND, 20 * SECOND + SECOND // 20, *range(21 * SECOND, 30 * SECOND, SECOND)):
        count = 0 if at == 20 * SECOND else 100
        for segment in layout.segments:
            load.observe(segment.name, TrafficCounters(count, count, 1), at)
        found += load.changes(SPEC, layout, alive(A, B, C), at)
    assert not found, "all segments together are below one target"


def test_a_pause_withholds_what_load_requires_and_its_end_does_it() -> None:
    layout, load = layout_of(1, A, B), TopicLoad()
    load.paused = True
    for second in range(12):
        report(load, layout, range(second, second + 1), 5_000)
        assert not load.changes(SPEC, layout, alive(A, B), second * SECOND)
    assert [c.action for c in load.withheld_changes] == [SegmentAction.SPLIT]
    load.paused = False
    changes = load.changes(SPEC, layout, alive(A, B), 12 * SECOND)
    assert [c.action for c in changes] == [SegmentAction.SPLIT]
    assert not load.withheld_changes


def test_a_pause_withholds_moves_and_merges_and_what_segments_min_requires() -> None:
    layout, load = layout_of(8, A, B), TopicLoad()
    load.paused = True
    report(load, layout, range(20), *[700] * 8)
    assert not load.changes(SPEC, layout, alive(A, B, C), 20 * SECOND), "a move would be due"
    more = replace(SPEC, min_segments=16)
    assert not load.changes(more, layout, alive(A, B, C), 21 * SECOND) and load.withheld_changes
    load = TopicLoad()
    load.paused = True
    for second in range(60):
        report(load, layout, range(second, second + 1), *[1] * 8)
        assert not load.changes(SPEC, layout, alive(A, B), second * SECOND)
    assert [c.action for c in load.withheld_changes] == [SegmentAction.MERGE]


def test_a_pause_does_not_remember_a_quiet_of_before_it() -> None:
    """Quiet, then paused and busy, then quiet again: the wait begins anew."""
    layout, load = layout_of(2, A, B), TopicLoad()
    rates = [1] * 29 + [300] * 200 + [1] * 200
    total, merged_at = 0, None
    for second, rate in enumerate(rates):
        load.paused = 29 <= second < 229
        total += rate
        for segment in layout.segments:
            load.observe(segment.name, TrafficCounters(total, total, 1), second * SECOND)
        if load.changes(SPEC, layout, alive(A, B), second * SECOND):
            merged_at = second
            break
    assert merged_at is not None and merged_at >= 229 + SPEC.merge_after // SECOND


def test_rolls_go_on_while_it_is_paused() -> None:
    layout, load = layout_of(1, A, B), TopicLoad()
    load.paused = True
    report(load, layout, range(3), 10)
    old = replace(SPEC, roll_age=2 * SECOND)
    assert [c.action for c in load.changes(old, layout, alive(A, B), 3 * SECOND)] == [SegmentAction.ROLL]


def test_a_topic_that_merges_soon_forgets_a_flood_soon() -> None:
    def merged_after(merge_after: int) -> int:
        layout, load, total = layout_of(2, A, B), TopicLoad(), 0
        spec = replace(SPEC, merge_after=merge_after)
        for second in range(300):
            total += 900 if second < 60 else 10
            for segment in layout.segments:
                load.observe(segment.name, TrafficCounters(total, total, 1), second * SECOND)
            changes = load.changes(spec, layout, alive(A, B), second * SECOND)
            if any(c.action is SegmentAction.MERGE for c in changes):
                return second - 60
        raise AssertionError("never")

    assert merged_after(3 * SECOND) < 20
    assert merged_after(30 * SECOND) > 30 + 30, "the rate of the last minute counts"
