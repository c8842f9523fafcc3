"""Spark's filters leave out files only by what they really exclude."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, LessThan, LessThanOrEqual, Not

from pyspark_smq.planning.wanted import KeyBounds, TimeBounds, Wanted
from pyspark_smq.source.partition_reader import appended_within
from pyspark_smq.source.pushed_filters import wanted_by
from smq_storage.chunks.schemas import TIMESTAMP

SCHEMA = pa.schema([("key", pa.binary()), ("delay", pa.int32()), ("appended", TIMESTAMP), ("timestamp", TIMESTAMP)])
AT = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([EqualTo(("key",), b"k")], Wanted(key=KeyBounds(b"k", b"k"))),
        ([In(("key",), (b"c", None, b"a"))], Wanted(key=KeyBounds(b"a", b"c"))),
        ([GreaterThan(("key",), b"a"), LessThan(("key",), b"m")], Wanted(key=KeyBounds(b"a", b"m"))),
        ([GreaterThan(("appended",), AT)], Wanted(appended=TimeBounds(1_000_000, None))),
        ([LessThanOrEqual(("timestamp",), AT)], Wanted(timestamp=TimeBounds(None, 1_000_001))),
        ([Not(EqualTo(("key",), b"k")), IsNotNull(("key",)), EqualTo(("delay",), 3)], Wanted()),
        ([EqualTo(("key", "inner"), b"k"), EqualTo(("key",), 5)], Wanted()),
    ],
)
def test_bounds(filters: list[Filter], wanted: Wanted) -> None:
    assert wanted_by(filters, SCHEMA, "key") == wanted


def test_a_topic_without_a_key_has_no_bounds_of_it() -> None:
    assert wanted_by([EqualTo(("key",), b"k")], SCHEMA, None) == Wanted()


def test_messages_keep_their_offsets_when_others_are_left_out() -> None:
    times = [5, 6, 7, 3, 6, 9]
    table = pa.table({"appended": pa.array(times).cast(TIMESTAMP), "n": list(range(6))})
    found = [(first, part.column("n").to_pylist()) for first, part in appended_within(100, table, TimeBounds(6, 9))]
    assert found == [(101, [1, 2]), (104, [4])]
    assert list(appended_within(100, table, TimeBounds(10, None))) == []
    ((first, whole),) = appended_within(100, table, TimeBounds())
    assert first == 100 and whole.num_rows == 6
