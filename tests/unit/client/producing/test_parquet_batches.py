"""Times of INT96 in Parquet files of older programs."""

from __future__ import annotations

import io
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.exact_cast import InexactValue
from smq.producing.encoding.parquet_batches import MICROS, NANOS, exact_times, read_batches
from smq.producing.uploads.parquet_files import ParquetSource
from smq_core.model.entities import Column, Topic, TopicSpec

LATE = datetime(9999, 12, 31, 23, 59, 59, 999_999)
EARLY = datetime(1, 1, 1)
NOW = datetime(2026, 5, 1, 12, 30, 0, 5)
NANOSECOND = 1


def file_of(values: list[object], type_: pa.DataType) -> io.BytesIO:
    found = io.BytesIO()
    table = pa.table({"id": pa.array(range(len(values)), pa.int32()), "at": pa.array(values, type_)})
    pq.write_table(table, found, use_deprecated_int96_timestamps=True, row_group_size=2)
    return found


def read(file: io.BytesIO, **options: int) -> list[pa.RecordBatch]:
    opened = pq.ParquetFile(file, coerce_int96_timestamp_unit=MICROS)
    return list(read_batches(opened, lambda: pq.ParquetFile(file, coerce_int96_timestamp_unit=NANOS), **options))


def test_times_of_all_years_are_exact() -> None:
    found = read(file_of([LATE, None, EARLY, NOW], pa.timestamp("us")))

    assert [row["at"] for batch in found for row in batch.to_pylist()] == [LATE, None, EARLY, NOW]


def test_nanoseconds_are_kept() -> None:
    (found,) = read(file_of([1, None, -1], pa.timestamp("ns")))

    assert found["at"].view(pa.int64()).to_pylist() == [1, None, -1]


def test_nanoseconds_beside_other_centuries_are_refused_with_their_row() -> None:
    # Arrow writes no such file, so these are the two readings of one.
    micros = pa.record_batch({"at": pa.array([LATE, NOW], pa.timestamp("us"))})
    wrapped = pa.array([253402300799999999 * 1000 - (1 << 64) * 14, 1], pa.int64()).view(pa.timestamp("ns"))
    with pytest.raises(InexactValue, match="nanoseconds beside times outside of the years 1677 to 2262"):
        exact_times(micros["at"], wrapped)


def test_lists_of_times_are_exact_or_refused() -> None:
    (found,) = read(file_of([[NOW], None, []], pa.list_(pa.timestamp("us"))), batch_size=10)
    assert found["at"].to_pylist()[0] == [NOW]
    with pytest.raises(InexactValue, match="a list, struct or map has times of INT96") as caught:
        read(file_of([[NOW], [LATE]], pa.list_(pa.timestamp("us"))))
    assert (caught.value.column, caught.value.row) == ("at", 1)


def test_files_that_are_published_by_reference_haveexact_times() -> None:
    columns = (Column("id", "int32"), Column("at", "timestamp[us]", nullable=True))
    encoder = BatchEncoder(Topic("default/t", "u", TopicSpec(partitions=64, schema=columns)))
    source = ParquetSource.of(file_of([LATE, None, EARLY, NOW], pa.timestamp("us")), 0)

    found = [table for table, _ in source.read(encoder, None, 1 << 20)]

    assert [value for table in found for value in table["at"].to_pylist()] == [LATE, None, EARLY, NOW]
