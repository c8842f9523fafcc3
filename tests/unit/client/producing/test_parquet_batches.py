"""Times of INT96 in Parquet files of older programs."""

from __future__ import annotations

import io
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq.cli.files.sources import InputFormat, tables
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.parquet_batches import MICROS, NANOS, exact_times, read_batches
from smq.producing.uploads.parquet_files import ParquetSource
from smq_core.errors import SchemaMismatch
from smq_core.model.entities import Column, Topic, TopicSpec
from smq_storage.conversion.exact_cast import InexactValue

LATE = datetime(9999, 12, 31, 23, 59, 59, 999_999)
EARLY = datetime(1, 1, 1)
NOW = datetime(2026, 5, 1, 12, 30, 0, 5)
NANOSECOND = 1


def file_of(values: list[Any], type_: pa.DataType, old: bool = True) -> io.BytesIO:
    found = io.BytesIO()
    table = pa.table({"id": pa.array(range(len(values)), pa.int32()), "at": pa.array(values, type_)})
    pq.write_table(table, found, use_deprecated_int96_timestamps=old, row_group_size=2)
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


def test_files_that_are_published_by_reference_have_exact_times() -> None:
    columns = (Column("id", "int32"), Column("at", "timestamp[us]", nullable=True))
    encoder = BatchEncoder(Topic("default/t", "u", TopicSpec(partitions=64, schema=columns)))
    source = ParquetSource.of(file_of([LATE, None, EARLY, NOW], pa.timestamp("us")), 0)

    found = [table for table, _ in source.read(encoder, None, 1 << 20)]

    assert [value for table in found for value in table["at"].to_pylist()] == [LATE, None, EARLY, NOW]


@pytest.mark.parametrize(("old", "times"), [(True, 2), (False, 1)])
def test_a_file_is_opened_once_and_once_more_for_int96_and_closed(old: bool, times: int) -> None:
    columns = (Column("id", "int32"), Column("at", "timestamp[us]", nullable=True))
    encoder = BatchEncoder(Topic("default/t", "u", TopicSpec(partitions=64, schema=columns)))
    data = file_of([NOW] * 8, pa.timestamp("us"), old=old).getvalue()
    opened: list[io.BytesIO] = []

    def open_url(_: str) -> io.BytesIO:
        opened.append(io.BytesIO(data))
        return opened[-1]

    source = ParquetSource.of("s3://bucket/x.parquet", 0, open_url)
    assert sum(table.num_rows for table, _ in source.read(encoder, None, 1 << 20)) == 8
    assert [it.closed for it in opened] == [True] * times


def test_a_file_object_of_the_program_stays_open() -> None:
    encoder = BatchEncoder(Topic("default/t", "u", TopicSpec(partitions=64, schema=(Column("id", "int32"),))))
    file = file_of([NOW], pa.timestamp("us"))
    with pytest.raises(SchemaMismatch):
        ParquetSource.of(file, 0).check(encoder, None)
    assert not file.closed


def test_smq_publish_opens_a_file_again_only_for_int96(monkeypatch: pytest.MonkeyPatch) -> None:
    units: list[str] = []

    def opened(source: object, *, coerce_int96_timestamp_unit: str) -> pq.ParquetFile:
        units.append(coerce_int96_timestamp_unit)
        return original(source, coerce_int96_timestamp_unit=coerce_int96_timestamp_unit)

    original = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", opened)
    for old in (False, True):
        data = file_of([NOW] * 3, pa.timestamp("us"), old=old)
        (table,) = tables("-", InputFormat.PARQUET, (), data)
        assert table["at"].to_pylist() == [NOW] * 3
    assert units == [MICROS, MICROS, NANOS]
