"""Reads of a range: the right rows and columns, few requests, and errors that name the file."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smq_core.errors import CorruptChunk, CorruptDocument, DataLost
from smq_storage.catalog import paths
from smq_storage.chunks import parquet_codec, parquet_ranges
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store, open_store
from smq_storage.tables import range_reader
from smq_storage.tables.file_lists import write_file_list
from smq_storage.tables.range_reader import read_range
from smq_storage.tables.segment_files import StoredSegment
from support.data.stored_segment import SEGMENT, TOPIC, UID, CountingStore, file_list_of_chain, write_segment

pytestmark = pytest.mark.usefixtures("small_files")

# Rows of a row group in these tests.
GROUP = 10


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chunk counts as a large file with small row groups."""
    monkeypatch.setattr(parquet_codec, "ROW_GROUP_ROWS", GROUP)
    monkeypatch.setattr(range_reader, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(parquet_ranges, "MAX_HOLE_BYTES", 0)
    monkeypatch.setattr(parquet_ranges, "TAIL_BYTES", 64)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(open_store("memory://"))


def replace_chunk(store: Store, data: bytes) -> StoredSegment:
    """Replaces the chunk at offset 20 of a segment of 40 rows; the file list has the new etag and size."""
    file_list = file_list_of_chain(ChunkChain(store, TOPIC, UID, SEGMENT), None)
    assert file_list is not None
    etag = store.put(chunk(20), data)
    files = (file_list.files[0], replace(file_list.files[1], etag=etag, bytes=len(data)))
    return StoredSegment(
        topic=TOPIC,
        uid=UID,
        name=SEGMENT,
        end=40,
        file_list=write_file_list(store, TOPIC, UID, replace(file_list, files=files)),
    )


def numbers(tables: list[tuple[int, pa.Table]]) -> list[int]:
    """The offsets of the rows, from the first offset of each table, after a look at their column ``number``."""
    for first, table in tables:
        assert table.column("number").to_pylist() == list(range(first, first + table.num_rows))
    return [first + i for first, table in tables for i in range(table.num_rows)]


def chunk(first: int) -> str:
    return paths.chunk(TOPIC, UID, SEGMENT, first)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 35), min_size=1, max_size=4),
    start=st.integers(0, 100),
    length=st.integers(0, 100),
    columns=st.none() | st.permutations(["number", "text", "blob", "headers", "appended"]),
    file_list=st.booleans(),
    part_bytes=st.sampled_from([1, 1500, 1 << 20]),
    whole=st.booleans(),
)
def test_a_range_has_its_rows_and_columns(
    monkeypatch: pytest.MonkeyPatch,
    sizes: list[int],
    start: int,
    length: int,
    columns: list[str] | None,
    file_list: bool,
    part_bytes: int,
    whole: bool,
) -> None:
    store = CountingStore(open_store("memory://"))
    segment = write_segment(store, *sizes, file_list=file_list)
    monkeypatch.setattr(parquet_ranges, "PART_BYTES", part_bytes)
    monkeypatch.setattr(range_reader, "SMALL_FILE_BYTES", 1 << 20 if whole else 0)
    tables = list(read_range(store, segment, start, start + length, columns))
    assert numbers(tables) == list(range(min(start, sum(sizes)), min(start + length, sum(sizes))))
    for _, table in tables:
        assert table.num_rows
        assert columns is None or table.column_names == columns
        assert table.column("text").to_pylist() == [f"text {n}" for n in table.column("number").to_pylist()]


def test_few_row_groups_and_columns_of_a_large_file_are_requested(store: CountingStore) -> None:
    segment = write_segment(store, 200, blob_bytes=10_000)
    store.reset()
    assert numbers(list(read_range(store, segment, 101, 109, ["number"]))) == list(range(101, 109))
    assert len(store.requests.reads) == 4, "the file list, the footer's length, the footer, one column chunk"
    assert store.requests.bytes < 100_000, "of 2 MB"
    store.reset()
    assert len(numbers(list(read_range(store, segment, 95, 105)))) == 10
    assert len(store.requests.reads) == 4, "both row groups in one part"
    assert 200_000 < store.requests.bytes < 300_000


def test_no_file_is_requested_before_its_table_is_wanted(store: CountingStore) -> None:
    segment = write_segment(store, 20, 20, 20)
    store.reset()
    tables = read_range(store, segment, 0, 60)
    next(tables)
    assert {path for path in store.requests.reads if path.endswith(".parquet")} == {chunk(0)}


def test_a_position_finds_its_file_without_listing_or_walking(store: CountingStore) -> None:
    segment = write_segment(store, *[5] * 30)
    store.reset()
    assert numbers(list(read_range(store, segment, 73, 75))) == [73, 74]
    assert store.requests.listings == 0
    assert set(store.requests.reads) == {paths.file_list(TOPIC, UID, segment.file_list), chunk(70)}


def test_a_small_file_is_one_request(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = write_segment(store, 100, 100)
    monkeypatch.setattr(range_reader, "SMALL_FILE_BYTES", 1 << 20)
    store.reset()
    list(read_range(store, segment, 110, 120, ["number"]))
    assert store.requests.reads[1:] == [chunk(100)]


def test_a_file_that_is_wanted_whole_is_one_request(store: CountingStore) -> None:
    segment = write_segment(store, 100, 100)
    store.reset()
    list(read_range(store, segment, 0, 200))
    assert store.requests.reads[1:] == [chunk(0), chunk(100)]


@pytest.mark.parametrize("file_list", [True, False])
def test_a_vanished_file_is_lost_with_its_name(store: CountingStore, file_list: bool) -> None:
    segment = write_segment(store, 20, 20, 20, file_list=file_list)
    store.delete(chunk(20))
    tables = read_range(store, segment, 5, 55)
    assert numbers([next(tables)]) == list(range(5, 20))
    with pytest.raises(DataLost) as raised:
        next(tables)
    assert chunk(20) in raised.value.message
    assert (raised.value.segment, raised.value.start) == (SEGMENT, 20)


def test_a_segment_whose_files_are_all_gone_is_lost(store: CountingStore) -> None:
    segment = write_segment(store, 20, 20)
    for path in (chunk(0), chunk(20), chunk(40), paths.file_list(TOPIC, UID, segment.file_list)):
        store.delete(path)
    for start in (0, 25):
        with pytest.raises(DataLost, match=f"{TOPIC}/{UID}/{SEGMENT}") as raised:
            list(read_range(store, segment, start, 30))
        assert (raised.value.start, raised.value.stop) == (start, 30)


@pytest.mark.parametrize("small", [True, False])
def test_an_altered_file_is_refused_by_its_name(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    segment = write_segment(store, 20, 20)
    monkeypatch.setattr(range_reader, "SMALL_FILE_BYTES", 1 << 20 if small else 0)
    store.put(chunk(20), bytes(store.get(chunk(20)).data))  # the same bytes, but another object
    assert numbers(list(read_range(store, segment, 0, 20))) == list(range(20))
    with pytest.raises(CorruptChunk, match="altered") as raised:
        list(read_range(store, segment, 15, 25))
    assert raised.value.path == chunk(20)
    assert chunk(20) in raised.value.message


def test_a_file_that_is_altered_between_its_requests_is_refused(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = write_segment(store, 40)
    monkeypatch.setattr(parquet_ranges, "PART_BYTES", 1)
    tables = read_range(store, segment, 0, 35)
    assert numbers([next(tables)]) == list(range(10))
    store.put(chunk(0), bytes(store.get(chunk(0)).data))
    with pytest.raises(CorruptChunk, match="altered"):
        next(tables)


@pytest.mark.parametrize("damage", ["footer", "pages", "rows"])
@pytest.mark.parametrize("small", [True, False])
def test_a_damaged_file_is_refused_by_its_name(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch, damage: str, small: bool
) -> None:
    write_segment(store, 20, 20, file_list=False)
    monkeypatch.setattr(range_reader, "SMALL_FILE_BYTES", 1 << 20 if small else 0)
    data = bytearray(store.get(chunk(20)).data)
    if damage == "footer":
        data[-40:-20] = b"\xff" * 20
    elif damage == "pages":
        data[4:400] = b"\xff" * 396
    else:
        data = bytearray(store.get(chunk(40)).data)  # the seal chunk: no rows
    segment = replace_chunk(store, bytes(data))
    with pytest.raises(CorruptChunk) as raised:
        list(read_range(store, segment, 20, 40))
    assert raised.value.path == chunk(20)
    assert chunk(20) in raised.value.message


def test_a_damaged_file_list_is_refused(store: CountingStore) -> None:
    segment = write_segment(store, 20)
    store.put(paths.file_list(TOPIC, UID, segment.file_list), b"{")
    with pytest.raises(CorruptDocument, match=segment.file_list):
        list(read_range(store, segment, 0, 20))


def test_the_file_list_of_a_segment_with_another_end_is_refused(store: CountingStore) -> None:
    segment = write_segment(store, 20)
    with pytest.raises(CorruptDocument, match=r"ends at offset 20, but .* ends at 21"):
        list(read_range(store, replace(segment, end=21), 0, 20))


def test_an_open_segment_is_read_up_to_its_last_chunk(store: CountingStore) -> None:
    segment = write_segment(store, 20, 20, file_list=False)
    store.delete(chunk(40))
    found = list(read_range(store, StoredSegment(topic=TOPIC, uid=UID, name=segment.name), 15, 1000))
    assert numbers(found) == list(range(15, 40))
    assert list(read_range(store, StoredSegment(topic=TOPIC, uid=UID, name=segment.name), 40, 1000)) == []


def test_columns_that_a_file_does_not_have_are_left_out(store: CountingStore) -> None:
    segment = write_segment(store, 20)
    ((_, table),) = read_range(store, segment, 0, 10, ["added_later", "number"])
    assert table.column_names == ["number"]
    ((_, table),) = read_range(store, segment, 0, 10, [])
    assert (table.num_columns, table.num_rows) == (0, 10)


def test_a_segment_can_be_sent_to_another_process(store: CountingStore) -> None:
    segment = write_segment(store, 20)
    assert pickle.loads(pickle.dumps(segment)) == segment
