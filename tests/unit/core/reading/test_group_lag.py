"""The lag of a group: what it has not committed, and how old that is."""

from __future__ import annotations

import pytest

from smq_core.reading.append_times import MAX_POINTS, AppendTimes
from smq_core.reading.group_lag import GroupLag, SegmentLag, segment_lags, total_lag
from smq_core.reading.segment_dag import SegmentNode

OLD, LOW, HIGH = "f-0-8-0", "f-0-4-1", "f-4-8-2"
DAG = {
    OLD: SegmentNode(OLD, (), 100),
    LOW: SegmentNode(LOW, (OLD,)),
    HIGH: SegmentNode(HIGH, (OLD,)),
}
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
    assert sum(it.messages for it in segment_lags(DAG, positions, ENDS)) == behind


def test_segments_that_are_read_to_their_ends_are_left_out() -> None:
    assert segment_lags(DAG, {LOW: 10}, ENDS) == [SegmentLag(LOW, 10, 10), SegmentLag(HIGH, 0, 20)]


def test_the_age_is_that_of_the_oldest_message_that_is_not_committed() -> None:
    appended = {(LOW, 4): 700, (HIGH, 0): 300, (OLD, 0): 1}
    lags = segment_lags(DAG, {OLD: 100, LOW: 4, HIGH: 0}, ENDS)
    assert total_lag(lags, lambda *at: appended.get(at), 1000) == GroupLag(26, 700)


def test_a_group_that_has_committed_everything_has_no_age() -> None:
    lags = segment_lags(DAG, {LOW: 10, HIGH: 20}, ENDS)
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
