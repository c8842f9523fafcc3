"""Uploads: the order of their rows, what their footers say, and reading the rows of a reference."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq_core.errors import CorruptChunk, DataLost, InvalidRequest
from smq_core.model.keyspace import KeyRange
from smq_storage.catalog import paths
from smq_storage.chunks import parquet_ranges
from smq_storage.chunks.schemas import TIMESTAMP, chunk_schema, message_schema
from smq_storage.object_store.store import Store, open_store
from smq_storage.uploads import upload_format
from smq_storage.uploads.upload_format import UploadFooter, footer_of, sort_by_partition
from smq_storage.uploads.uploaded_files import ReferencedRows, read_referenced_rows, read_upload_footer
from support.data import uploads

UID = "uid"
ROWS = 5000


def messages(rows: int = ROWS, partitions: int = 16) -> pa.Table:
    dice = np.random.default_rng(0)
    schema = message_schema()
    columns = [
        pa.array(dice.integers(0, partitions, rows).astype(np.int32)),
        pa.array(np.arange(rows)).cast(TIMESTAMP),
        pa.array([b"k%d" % (n % 50) for n in range(rows)]),
        pa.array([b"v%d" % n for n in range(rows)]),
        pa.nulls(rows, schema.field("headers").type),
    ]
    return pa.table(columns, schema=schema)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(upload_format, "ROW_GROUP_ROWS", 700)
    return open_store("memory://")


def referenced(upload: uploads.WrittenUpload, partitions: KeyRange, first: int = 100) -> ReferencedRows:
    return ReferencedRows.of(UID, "s", first, upload.reference(partitions), appended=77)


def test_rows_of_a_partition_stay_in_their_order():
    table = sort_by_partition(messages())
    partitions = table.column("partition").to_pylist()
    assert partitions == sorted(partitions)
    for partition in (0, 7, 15):
        times = [t for p, t in zip(partitions, table.column("timestamp").to_pylist(), strict=True) if p == partition]
        assert times == sorted(times) and len(times) > 100


def test_the_footer_alone_shows_the_rows_of_a_range(store: Store):
    upload = uploads.write(store, UID, "u.parquet", messages())
    stored = read_upload_footer(store, paths.uploaded_file(UID, "u.parquet"))
    assert (stored.etag, stored.size, stored.parsed.footer) == (upload.etag, upload.size, upload.footer)
    assert stored.parsed.schema.equals(message_schema())
    partitions = upload.table.column("partition").to_numpy()
    for start, stop in [(0, 16), (3, 9), (15, 16)]:
        first, rows = upload.footer.rows_of(KeyRange(start, stop))
        assert (first, rows) == (
            np.searchsorted(partitions, start),
            ((partitions >= start) & (partitions < stop)).sum(),
        )
        assert upload.footer.partitions_of(first, rows) == (start, stop - 1)
    assert upload.footer.partitions_of(ROWS - 1, 2) is None
    assert [group[0] for group in stored.parsed.row_groups] == [700] * 7 + [100]
    assert stored.parsed.row_groups[0][1] == 0 and stored.parsed.row_groups[-1][2] == 15


def test_row_groups_of_long_rows_have_few_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upload_format, "ROW_GROUP_BYTES", 20_000)
    table = sort_by_partition(messages(400, partitions=4))
    sizes = [1000] * 300 + [15_000] * 99 + [50_000]
    table = table.set_column(3, table.schema.field("value"), pa.array([b"v" * size for size in sizes]))
    footer = pq.read_metadata(pa.BufferReader(uploads.upload_bytes(table, footer_of(table, UID, 0, "p", 1))))
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    assert sum(group.num_rows for group in groups) == 400
    assert all(group.num_rows == 1 or group.total_byte_size < 21_000 for group in groups)
    assert groups[0].num_rows > 1 and groups[-1].total_byte_size > 50_000


def test_row_groups_that_compress_well_are_decoded_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parquet_ranges, "DECODED_BYTES", 66_000)  # a row group takes 62,500
    table = messages()
    table = table.set_column(3, table.schema.field("value"), pa.array([b"v" * 50] * ROWS))
    upload = uploads.write(store, UID, "u.parquet", table)
    found = list(read_referenced_rows(store, referenced(upload, KeyRange(0, 16))))
    assert [rows.num_rows for _, rows in found] == [700] * 7 + [100]


@pytest.mark.parametrize("part_bytes", [8 << 20, 1000])
def test_few_rows_of_a_large_row_group_are_decoded_in_parts(
    store: Store, monkeypatch: pytest.MonkeyPatch, part_bytes: int
):
    """Another program may have written all rows as one row group, whose bytes in the file are few."""
    monkeypatch.setattr(upload_format, "ROW_GROUP_ROWS", ROWS)
    monkeypatch.setattr(parquet_ranges, "DECODED_BYTES", 1 << 20)
    monkeypatch.setattr(parquet_ranges, "PART_BYTES", part_bytes)
    monkeypatch.setattr(parquet_ranges, "STREAMED_BYTES", 1000)
    table = messages()
    table = table.set_column(3, table.schema.field("value"), pa.array([b"%d" % n + bytes(5000) for n in range(ROWS)]))
    upload = uploads.write(store, UID, "u.parquet", table)
    assert read_upload_footer(store, paths.uploaded_file(UID, "u.parquet")).parsed.largest > 8 << 20
    rows = referenced(upload, KeyRange(0, 16))
    whole = list(read_referenced_rows(store, rows))
    assert max(part.nbytes for _, part in whole) < 3 << 20
    assert pa.concat_tables([part for _, part in whole]).column("value").equals(upload.table.column("value"))
    some = list(read_referenced_rows(store, rows, 1095, 1105))
    assert some[0][0] == 1095 and all(a + t.num_rows == b for (a, t), (b, _) in pairwise(some))
    values = pa.concat_tables([part for _, part in some]).column("value")
    assert values.equals(upload.table.column("value").slice(995, 10))


def test_an_empty_partition_has_no_rows():
    footer = UploadFooter(topic_uid=UID, schema_version=0, producer="p", epoch=1, rows=5, partitions=((2, 3), (8, 2)))
    assert (footer.rows_of(KeyRange(3, 8)), footer.rows_of(KeyRange(0, 9))) == ((3, 0), (0, 5))


@pytest.mark.parametrize("skip", [0, 1, 800])
def test_the_rows_of_a_reference_have_the_columns_of_a_chunk(store: Store, skip: int):
    upload = uploads.write(store, UID, "u.parquet", messages())
    rows = referenced(upload, KeyRange(3, 9))
    found = list(read_referenced_rows(store, rows, rows.first + skip))
    assert found[0][0] == rows.first + skip
    assert all(a + t.num_rows == b for (a, t), (b, _) in pairwise(found))
    whole = pa.concat_tables([table for _, table in found])
    assert whole.schema.equals(chunk_schema())
    assert whole.column("appended").cast(pa.int64()).unique().to_pylist() == [77]
    assert whole.drop_columns(["appended"]).equals(upload.table.slice(rows.first_row + skip, rows.rows - skip))


def test_a_range_and_some_columns(store: Store):
    upload = uploads.write(store, UID, "u.parquet", messages())
    rows = referenced(upload, KeyRange(3, 9))
    found = list(read_referenced_rows(store, rows, 200, 950, ["appended", "value", "x"]))
    whole = pa.concat_tables([table for _, table in found])
    assert found[0][0] == 200 and whole.column_names == ["appended", "value"]
    assert whole.column("value").equals(upload.table.slice(rows.first_row + 100, 750).column("value"))


class CountingStore:
    """Counts the bytes that are read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests: list[int] = []

    def __getattr__(self, name: str):
        call = getattr(self._store, name)

        def counted(*args: object):
            found = call(*args)
            self.requests.append(len(found.data) if name == "get_tail" else len(found))
            return found

        return counted


def test_only_the_row_groups_of_the_reference_are_read(store: Store):
    upload = uploads.write(store, UID, "u.parquet", messages(200_000))
    counting = CountingStore(store)
    rows = referenced(upload, KeyRange(2, 3))
    found = list(read_referenced_rows(counting, rows))  # type: ignore[arg-type]
    assert sum(table.num_rows for _, table in found) == rows.rows
    assert len(counting.requests) == 3, "the end of the file, all of its footer, and the row groups"
    assert counting.requests[2] < upload.size / 16 * 1.5


def test_only_the_wanted_columns_are_read(store: Store):
    upload = uploads.write(store, UID, "u.parquet", messages(50_000))
    rows = referenced(upload, KeyRange(0, 16))

    def bytes_of(columns: list[str] | None) -> int:
        counting = CountingStore(store)
        found = [t for _, t in read_referenced_rows(counting, rows, columns=columns)]  # type: ignore[arg-type]
        assert sum(t.num_rows for t in found) == 50_000
        return sum(counting.requests)

    assert bytes_of(["appended"]) < bytes_of(["timestamp"]) < bytes_of(None)


def test_a_file_that_is_gone_is_lost_data(store: Store):
    upload = uploads.write(store, UID, "u.parquet", messages())
    rows = referenced(upload, KeyRange(0, 4))
    store.delete(rows.path)
    with pytest.raises(DataLost, match=rf"the file {rows.path} is gone") as raised:
        list(read_referenced_rows(store, rows, rows.first + 5))
    assert (raised.value.segment, raised.value.start, raised.value.stop) == ("s", rows.first + 5, rows.end)
    assert raised.value.path == rows.path


def test_a_file_that_was_replaced_is_named(store: Store):
    upload = uploads.write(store, UID, "u.parquet", messages())
    rows = referenced(upload, KeyRange(0, 4))
    uploads.write(store, UID, "u.parquet", messages(ROWS - 1))
    with pytest.raises(DataLost, match=f"{rows.path} was altered") as raised:
        list(read_referenced_rows(store, rows))
    assert raised.value.path == rows.path


def test_a_file_that_is_replaced_while_it_is_read_is_named(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parquet_ranges, "PART_BYTES", 1)
    upload = uploads.write(store, UID, "u.parquet", messages(200_000))
    rows = referenced(upload, KeyRange(0, 4))
    reading = read_referenced_rows(store, rows)
    next(reading)
    store.put(rows.path, b"x" * upload.size)
    with pytest.raises(DataLost, match="was altered"):
        list(reading)


def test_rows_outside_the_stated_partitions_are_found_by_the_reader(store: Store):
    upload = uploads.write(store, UID, "u.parquet", messages())
    rows = referenced(upload, KeyRange(3, 9))
    wrong = replace(rows, partitions=(3, 7))
    with pytest.raises(CorruptChunk, match="were published as 3 to 7"):
        list(read_referenced_rows(store, wrong))


def test_a_reference_beyond_the_file_is_found_by_the_reader(store: Store):
    upload = uploads.write(store, UID, "u.parquet", messages())
    rows = referenced(upload, KeyRange(15, 16))
    longer = replace(rows, rows=rows.rows + 1)
    with pytest.raises(CorruptChunk, match="the log refers to"):
        list(read_referenced_rows(store, longer))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not Parquet at all" * 100])
def test_a_file_that_is_no_upload(store: Store, content: bytes):
    store.put(paths.uploaded_file(UID, "u.parquet"), content)
    with pytest.raises(CorruptChunk):
        read_upload_footer(store, paths.uploaded_file(UID, "u.parquet"))


@pytest.mark.parametrize("name", ["../x.parquet", "a/b.parquet", ".x.parquet", "x", "x.parquet/", "", "é.parquet"])
def test_a_name_that_leads_out_of_the_folder_is_refused(name: str):
    with pytest.raises(InvalidRequest):
        paths.uploaded_file(UID, name)


def test_the_footer_counts_what_the_table_has():
    table = sort_by_partition(messages(100, 3))
    assert sum(rows for _, rows in footer_of(table, UID, 0, "p", 1).partitions) == 100
