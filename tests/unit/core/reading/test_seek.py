"""A reader that goes to other positions: what counts as read then, and what is read again."""

from __future__ import annotations

from smq_core.reading.segment_dag import ReadProgress, SegmentNode

# old splits into low and high; both merge into new, which splits into left and right
OLD, LOW, HIGH, NEW, LEFT, RIGHT = "f-0-8-0", "f-0-4-1", "f-4-8-2", "f-0-8-3", "f-0-4-4", "f-4-8-5"
DAG = {
    OLD: SegmentNode(OLD, (), 10),
    LOW: SegmentNode(LOW, (OLD,), 20),
    HIGH: SegmentNode(HIGH, (OLD,), 30),
    NEW: SegmentNode(NEW, (LOW, HIGH), 40),
    LEFT: SegmentNode(LEFT, (NEW,)),
    RIGHT: SegmentNode(RIGHT, (NEW,)),
}


def reader(**positions: int) -> ReadProgress:
    made = ReadProgress()
    made.update(DAG)
    for name, offset in positions.items():
        made.advance(globals()[name], offset)
    return made


def test_what_comes_after_is_read_again_and_what_comes_before_is_not() -> None:
    at = reader(LEFT=5, RIGHT=6)
    at.seek({NEW: 7})
    assert at.readable() == [NEW] and at.committed() == {NEW: 7}
    at.advance(NEW, 40)
    assert at.readable() == [LEFT, RIGHT] and LEFT not in at.positions


def test_a_neighbour_that_was_read_stays_read_although_what_implied_it_is_read_again() -> None:
    at = reader(LEFT=5, RIGHT=6)
    at.seek({LOW: 3})
    assert at.readable() == [LOW], "high was read, which only the positions after it said"
    assert at.committed() == {LOW: 3, HIGH: 30}


def test_a_segment_that_is_not_named_stays_where_it_is() -> None:
    at = reader(LEFT=5, RIGHT=6)
    at.seek({LEFT: 1})
    assert at.readable() == [LEFT, RIGHT] and at.committed() == {LEFT: 1, RIGHT: 6}


def test_segments_before_one_that_is_named_count_as_read() -> None:
    at = reader(LOW=3)
    at.seek({NEW: 4})
    assert at.readable() == [NEW] and at.committed() == {NEW: 4}


def test_several_segments_can_be_named_one_after_the_other() -> None:
    at = reader(LEFT=5, RIGHT=6)
    at.seek({LOW: 20, HIGH: 2})
    assert at.readable() == [HIGH]
