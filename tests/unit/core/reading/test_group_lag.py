"""The lag of a group: what it has not committed, and how old that is."""

from __future__ import annotations

import pytest

from smq_core.reading.append_times import MAX_POINTS, AppendTimes
from smq_core.reading.group_lag import GroupLag, SegmentGraph, SegmentLag, segment_lags, total_lag
from smq_core.reading.segment_dag import SegmentNode

OLD, LOW, HIGH = "f-0-8-0", "f-0-4-1", "f-4-8-2"
DAG = {
    OLD: SegmentNode(OLD, (), 100),
    LOW: SegmentNode(LOW, (OLD,)),
    HIGH: SegmentNode(HIGH, (OLD,)),
}
GRAPH = SegmentGraph.of(DAG)
ENDS = {LOW: 10, HIGH: 20}


@pytest.mark.parametrize(
    ("positions", "behind"),
    [
        ({}, 130),
        ({OLD: 40}, 90),
        ({OLD: 100}, 30),
        ({LOW: 10}, 20),
        ({LOW: 10, HIGH: 15}, 5),
        ({LOW: 99, HIGH: 20}, 0),
    ],
)
def test_what_is_readable_and_not_committed_counts(positions: dict[str, int], behind: int) -> None:
    assert sum(it.messages for it in segment_lags(GRAPH, positions, ENDS)) == behind


def test_segments_that_are_read_to_their_ends_are_left_out() -> None:
    assert segment_lags(GRAPH, {LOW: 10}, ENDS) == [SegmentLag(LOW, 10, 10), SegmentLag(HIGH, 0, 20)]


def test_a_position_counts_for_all_that_came_before_it_also_by_way_of_segments_without_one() -> None:
    # old splits into low and high; low is rolled; both are merged, and split again: only the last ones have positions
    nodes = {
        OLD: SegmentNode(OLD, (), 100),
        LOW: SegmentNode(LOW, (OLD,), 10),
        HIGH: SegmentNode(HIGH, (OLD,), 20),
        "f-0-4-3": SegmentNode("f-0-4-3", (LOW,), 30),
        "f-0-8-4": SegmentNode("f-0-8-4", ("f-0-4-3", HIGH), 40),
        "f-0-4-5": SegmentNode("f-0-4-5", ("f-0-8-4",)),
        "f-4-8-6": SegmentNode("f-4-8-6", ("f-0-8-4",)),
    }
    graph, ends = SegmentGraph.of(nodes), {"f-0-4-5": 5, "f-4-8-6": 6}

    def behind(positions: dict[str, int]) -> dict[str, int]:
        return {it.segment: it.messages for it in segment_lags(graph, positions, ends)}

    assert behind({"f-0-4-5": 5}) == {"f-0-4-5": 0, "f-4-8-6": 6}
    assert behind({"f-0-4-3": 9}) == {HIGH: 20, "f-0-4-3": 21, "f-0-8-4": 40, "f-0-4-5": 5, "f-4-8-6": 6}
    assert sum(behind({}).values()) == 211
    assert behind({LOW: 4, "f-0-8-4": 40}) == {"f-0-4-5": 5, "f-4-8-6": 6}


def test_predecessors_that_retention_removed_are_no_lag() -> None:
    assert segment_lags(SegmentGraph.of({LOW: DAG[LOW]}), {}, ENDS) == [SegmentLag(LOW, 0, 10)]


def test_the_history_of_a_group_that_keeps_up_is_not_walked() -> None:
    names = [f"f-0-8-{number}" for number in range(1000)]
    nodes = {name: SegmentNode(name, tuple(names[max(0, n - 1) : n]), 5) for n, name in enumerate(names)}
    visited: list[str] = []

    class Counted(dict[str, SegmentNode]):
        def __getitem__(self, name: str) -> SegmentNode:
            visited.append(name)
            return super().__getitem__(name)

    graph = SegmentGraph(Counted(nodes), (names[-1],))
    assert segment_lags(graph, {names[-1]: 3}, {}) == [SegmentLag(names[-1], 3, 5)]
    assert visited == [names[-1]]


def test_the_age_is_that_of_the_oldest_message_that_is_not_committed() -> None:
    appended = {(LOW, 4): 700, (HIGH, 0): 300, (OLD, 0): 1}
    lags = segment_lags(GRAPH, {OLD: 100, LOW: 4, HIGH: 0}, ENDS)
    assert total_lag(lags, lambda *at: appended.get(at), 1000) == GroupLag(26, 700)


def test_a_group_that_has_committed_everything_has_no_age() -> None:
    lags = segment_lags(GRAPH, {LOW: 10, HIGH: 20}, ENDS)
    assert total_lag(lags, lambda *_: 1, 1000) == GroupLag(0, 0)


def test_messages_are_dated_between_the_reports_before_and_after_them() -> None:
    times = AppendTimes()
    for now, watermark in ((100, 0), (200, 10), (300, 10), (400, 30)):
        times.observe(LOW, 50, watermark, now)
    assert [times.time_of(LOW, offset) for offset in (0, 5, 9, 10, 20, 29)] == [100, 150, 190, 300, 350, 395]
    assert times.time_of(LOW, 30) is None, "no report has it yet"
    assert times.time_of(HIGH, 0) is None


def test_a_message_after_a_long_rest_is_not_as_old_as_the_rest() -> None:
    times = AppendTimes()
    for now in range(0, 1_000_000, 1000):
        times.observe(LOW, 0, 7, now)
    times.observe(LOW, 0, 8, 1_000_000)
    assert times.time_of(LOW, 7) == 999_000
    assert len(times.histories[LOW].times) < 5, "a rest takes no memory"


def test_a_history_keeps_few_points_and_stays_in_order() -> None:
    times = AppendTimes()
    for now in range(10_000):
        times.observe(LOW, 0, now, now)
    history = times.histories[LOW]
    assert len(history.times) <= MAX_POINTS
    assert history.times == sorted(history.times) and history.watermarks == sorted(history.watermarks)
    for offset in (0, 10, 5000, 9990, 9998):
        assert abs((times.time_of(LOW, offset) or 0) - offset) <= 2


def test_only_the_segments_that_are_kept_take_memory() -> None:
    times = AppendTimes()
    times.observe(LOW, 0, 1, 1)
    times.observe(HIGH, 0, 1, 1)
    times.keep([HIGH])
    assert list(times.histories) == [HIGH]
