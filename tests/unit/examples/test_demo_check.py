"""The demo's own checks find what they are there to find."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from examples.demo_check import InFiles, ReadResult, check_read, report


def read(numbers: list[int], **columns: list[object]) -> pa.Table:
    """Messages read in this order, one batch each, from one segment; of two planes of two carriers."""
    rows = {
        "read_at": list(range(len(numbers))),
        "segment": ["s"] * len(numbers),
        "offset": list(numbers),
        "carrier": ["UA" if n % 2 else "AA" for n in numbers],
        "tailnum": ["N1" if n % 2 else "N0" for n in numbers],
        "number": numbers,
    }
    return pa.table(rows | columns)


RIGHT = ReadResult({"AA": 2, "UA": 2}, duplicates=0, lost=0, disorder=0, redelivered=0)


def test_all_is_well_when_each_message_is_there_once_and_each_plane_in_order() -> None:
    assert check_read(read([1, 0, 3, 2]), 4) == RIGHT


def test_a_message_that_is_missing_is_lost() -> None:
    assert check_read(read([0, 1, 3]), 4).lost == 1


def test_a_message_at_two_offsets_is_a_duplicate() -> None:
    found = check_read(read([0, 1, 2, 3, 3], offset=[0, 1, 2, 3, 4]), 4)

    assert (found.duplicates, found.redelivered) == (1, 0)


def test_a_message_read_twice_at_one_offset_is_redelivered_and_changes_no_order() -> None:
    found = check_read(read([0, 1, 2, 3, 1]), 4)

    assert (found.duplicates, found.redelivered, found.disorder) == (0, 1, 0)


def test_a_plane_whose_messages_come_in_another_order_is_found() -> None:
    assert check_read(read([0, 3, 2, 1]), 4).disorder == 1


def test_the_order_is_that_of_reading_not_of_the_table() -> None:
    table = read([0, 1, 2, 3]).take(np.array([3, 2, 1, 0]))

    assert check_read(table, 4).disorder == 0


def test_messages_without_a_plane_have_no_order() -> None:
    assert check_read(read([3, 2, 1, 0], tailnum=[None] * 4), 4).disorder == 0


@pytest.mark.parametrize(
    ("truth", "found", "files", "right"),
    [
        ({"AA": 2, "UA": 2}, RIGHT, InFiles({"AA": 2, "UA": 2}, 4), True),
        ({"AA": 2, "UA": 3}, RIGHT, InFiles({"AA": 2, "UA": 2}, 4), False),
        ({"AA": 2, "UA": 2}, RIGHT, InFiles({"AA": 2, "UA": 3}, 5), False),
        ({"AA": 2, "UA": 2}, RIGHT, InFiles({"AA": 2, "UA": 2}, 3), False),
        ({"AA": 2, "UA": 2}, ReadResult({"AA": 2, "UA": 2}, 0, 0, 1, 0), InFiles({"AA": 2, "UA": 2}, 4), False),
        ({"AA": 2, "UA": 2}, ReadResult({"AA": 2, "UA": 2}, 1, 0, 0, 0), InFiles({"AA": 2, "UA": 2}, 4), False),
        ({"AA": 2, "UA": 2}, ReadResult({"AA": 2, "UA": 2}, 0, 0, 0, 7), InFiles({"AA": 2, "UA": 2}, 4), True),
    ],
)
def test_the_report_is_right_only_when_every_count_is(
    truth: dict[str, int], found: ReadResult, files: InFiles, right: bool
) -> None:
    assert report(truth, found, files)[1] is right


@pytest.mark.parametrize(("streamed", "right"), [({"AA": 2, "UA": 2}, True), ({"AA": 2, "UA": 1}, False), ({}, False)])
def test_a_stream_that_counted_otherwise_is_found(streamed: dict[str, int], right: bool) -> None:
    table, found = report({"AA": 2, "UA": 2}, RIGHT, InFiles({"AA": 2, "UA": 2}, 4), streamed)
    assert found is right and "Spark's stream" in [column.header for column in table.columns]
