"""Positions that no reader can have are refused with what is possible; positions a number of messages on."""

from __future__ import annotations

import pytest

from smq_core.errors import InvalidRequest
from smq_core.reading.position_rules import check_positions, shifted
from smq_core.reading.segment_dag import SegmentNode

OLD, LOW, HIGH = "f-0-8-0", "f-0-4-1", "f-4-8-2"
DAG = {
    OLD: SegmentNode(OLD, (), 100),
    LOW: SegmentNode(LOW, (OLD,)),
    HIGH: SegmentNode(HIGH, (OLD,)),
}
ENDS = {LOW: 10, HIGH: 20}


@pytest.mark.parametrize("positions", [{}, {OLD: 0}, {OLD: 100}, {LOW: 10}, {LOW: 0, HIGH: 20}, {OLD: 100, LOW: 3}])
def test_positions_that_a_reader_can_have_are_accepted(positions: dict[str, int]) -> None:
    check_positions("default/f", DAG, positions, ENDS)


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ({OLD: 101}, r"f-0-8-0 has no offset 101: it ends at 100, so 0 to 100 are possible"),
        ({LOW: 11}, r"f-0-4-1 has no offset 11: it has messages up to 10, so 0 to 10 are possible"),
        ({LOW: -1}, r"0 to 10 are possible"),
        ({"g-0-8-7": 1}, r"default/f has no segment g-0-8-7; it has f-0-4-1, f-4-8-2, f-0-8-0$"),
        ({"f-0-8-9": 1}, r"retention has removed f-0-8-9: leave it out"),
        (
            {OLD: 40, LOW: 3},
            r"enters f-0-4-1 only after it has read f-0-8-0: leave f-0-4-1 out, or set .* its end, 100",
        ),
    ],
)
def test_positions_that_cannot_be_are_refused_with_what_can(positions: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_positions("default/f", DAG, positions, ENDS, ((9, 10),))


def test_the_end_of_a_living_segment_that_is_not_known_refuses_nothing() -> None:
    check_positions("default/f", DAG, {LOW: 11}, {})


@pytest.mark.parametrize(
    ("before", "by", "after"),
    [
        ({OLD: 40}, 10, {OLD: 50}),
        ({OLD: 40}, -50, {OLD: 0}),
        ({OLD: 40}, 70, {OLD: 100}),
        ({LOW: 6, HIGH: 6}, 5, {LOW: 10, HIGH: 11}),
        ({LOW: 6, HIGH: 6}, -5, {LOW: 1, HIGH: 1}),
        ({}, 5, {OLD: 5}),
        ({OLD: 100}, 5, {LOW: 5, HIGH: 5}),
    ],
)
def test_each_segment_that_is_read_now_goes_so_many_messages_on(
    before: dict[str, int], by: int, after: dict[str, int]
) -> None:
    assert shifted(DAG, before, ENDS, by) == after
