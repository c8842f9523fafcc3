"""A file is left out only if it certainly has no message that is wanted."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from pyspark_smq.errors import InvalidOption
from pyspark_smq.planning.wanted import KeyBounds, TimeBounds, Wanted, key_bounds, time_bounds
from smq_core.file_lists.file_list import FileEntry
from smq_core.file_lists.key_bounds import lower_bound, upper_bound


def file(**known: Any) -> FileEntry:
    return FileEntry(path="p", first=0, rows=10, bytes=100, etag="e", **known)


@pytest.mark.parametrize(
    ("bounds", "read"),
    [
        ((None, None), True),
        ((20, None), True),
        ((21, None), False),
        ((None, 10), False),
        ((None, 11), True),
        ((12, 13), True),
    ],
)
@pytest.mark.parametrize("column", ["appended", "timestamp"])
def test_times(bounds: tuple[int | None, int | None], read: bool, column: str) -> None:
    wanted = Wanted(**{column: TimeBounds(*bounds)})
    assert wanted.may_be_in(file(**{f"{column}_min": 10, f"{column}_max": 20})) is read
    assert wanted.may_be_in(file()), "unknown bounds exclude nothing"


@pytest.mark.parametrize(
    ("low", "high", "read"),
    [(None, None, True), (b"b", b"c", True), (b"d", None, False), (None, b"a", False), (b"c", b"c", True)],
)
def test_binary_keys(low: bytes | None, high: bytes | None, read: bool) -> None:
    stored = file(key_min=lower_bound(b"b"), key_max=upper_bound(b"c"))
    assert Wanted(key=KeyBounds(low, high)).may_be_in(stored) is read
    assert Wanted(key=KeyBounds(low, high)).may_be_in(file())


def test_long_keys_are_bounded_from_outside() -> None:
    longest = b"k" * 100
    stored = file(key_min=lower_bound(longest), key_max=upper_bound(longest))
    assert Wanted(key=KeyBounds(longest, longest)).may_be_in(stored)
    assert not Wanted(key=KeyBounds(b"l", None)).may_be_in(stored)


@pytest.mark.parametrize(
    ("value", "type_", "stored"),
    [
        (b"a", pa.binary(), b"a"),
        ("a", pa.binary(), b"a"),
        ("a", pa.string(), "a"),
        (7, pa.uint64(), 7),
        (date(1970, 1, 3), pa.date32(), 2),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), pa.timestamp("us", tz="UTC"), 1_000_000),
        (datetime(1970, 1, 1, 0, 0, 1), pa.timestamp("us"), 1_000_000),
    ],
)
def test_keys_of_every_type(value: Any, type_: pa.DataType, stored: Any) -> None:
    assert key_bounds((value, None), type_) == KeyBounds(stored, None)


@pytest.mark.parametrize(
    ("bounds", "type_", "words"),
    [
        ((1, 2), None, "no key column"),
        (("b", "a"), pa.string(), "begins after it ends"),
        ("ab", pa.string(), "two keys"),
        ((1.5, None), pa.float64(), "cannot bound"),
        ((b"a", None), pa.string(), "cannot bound"),
        ((True, None), pa.int64(), "cannot bound"),
        ((datetime(2026, 1, 1), None), pa.timestamp("us", tz="UTC"), "the key column is timestamp"),
    ],
)
def test_keys_that_do_not_fit_are_refused(bounds: Any, type_: pa.DataType | None, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        key_bounds(bounds, type_)


def test_times_that_are_wrong_are_refused() -> None:
    with pytest.raises(InvalidOption, match="two datetimes"):
        time_bounds("timestamp", ("2026", None))  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="begins after it ends"):
        time_bounds("timestamp", (datetime(2026, 1, 2), datetime(2026, 1, 1)))
    assert time_bounds("timestamp", (datetime(1970, 1, 1), None)) == TimeBounds(0, None)
