"""A plan divides exactly what is to be read, into tasks of limited size, in order."""

from __future__ import annotations

import pytest

from pyspark_smq.planning.partition_sizes import SizedRange, divide
from smq_core.reading.segment_ranges import SegmentRange

FILES = [
    SizedRange(SegmentRange("a", 0, 10), 100),
    SizedRange(SegmentRange("a", 10, 30), 200),
    SizedRange(SegmentRange("b", 5, 105), 1000),
    SizedRange(SegmentRange("c", 0, 1), 5000),
]


def offsets(ranges: list[SegmentRange]) -> list[tuple[str, int]]:
    return [(it.segment, n) for it in ranges for n in range(it.start, it.stop)]


@pytest.mark.parametrize("max_bytes", [1, 7, 100, 250, 10_000])
@pytest.mark.parametrize("min_partitions", [None, 1, 3, 50, 1000])
def test_every_message_is_in_one_partition_in_order(max_bytes: int, min_partitions: int | None) -> None:
    partitions = divide(FILES, max_bytes, min_partitions)
    assert [it for ranges in partitions for it in offsets(ranges)] == offsets([it.range for it in FILES])
    assert all(ranges and all(it.count for it in ranges) for ranges in partitions)


def test_partitions_are_as_large_as_they_may_be() -> None:
    assert divide(FILES[:3], 10_000) == [[SegmentRange("a", 0, 30), SegmentRange("b", 5, 105)]]
    assert divide(FILES[:2], 150) == [
        [SegmentRange("a", 0, 10)],
        [SegmentRange("a", 10, 20)],
        [SegmentRange("a", 20, 30)],
    ]


def test_only_one_message_may_be_larger() -> None:
    assert divide(FILES[3:], 10) == [[SegmentRange("c", 0, 1)]]


@pytest.mark.parametrize("count", [2, 5, 13, 100])
def test_as_many_partitions_as_are_wanted(count: int) -> None:
    assert len(divide(FILES[:3], 10_000, count)) >= count


def test_nothing_to_read_is_no_partition() -> None:
    assert divide([], 100, 5) == []
