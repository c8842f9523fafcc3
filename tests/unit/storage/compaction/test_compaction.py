"""A compacted segment has the same messages at the same offsets, in few files that are sorted by key."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.errors import CorruptChunk, DataLost
from smq_core.model.entities import Reason, RemovedSegment, SealedSegment
from smq_core.model.keyspace import KeyRange
from smq_storage.catalog import paths, sealed_index
from smq_storage.compaction import merging
from smq_storage.compaction.file_list_switch import plan_segment, switch_file_list
from smq_storage.compaction.merging import DEFAULT_LIMITS, MergeInterrupted, MergeLimits, merge_run
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Data, ObjectExists, Store, StoreStateUnknown, open_store
from smq_storage.tables.compacted_files import OFFSET, encode_compacted
from smq_storage.tables.file_lists import read_file_list
from smq_storage.tables.range_reader import read_range
from smq_storage.tables.segment_files import StoredSegment
from support.data.stored_segment import SEGMENT, TOPIC, UID, CountingStore, write_segment

POLICY = RetryPolicy(timeout_seconds=1)
SIZES = (20, 1, 7, 30, 5)
KEY = "text"  # "text 10" < "text 2": the order of keys is not that of offsets


def stored_segment(store: Store, sizes: tuple[int, ...] = SIZES) -> StoredSegment:
    """A sealed segment that the index names with its file list."""
    segment = write_segment(store, *sizes)
    assert segment.end is not None
    entry = SealedSegment(
        name=SEGMENT,
        number=0,
        range=KeyRange(0, 8),
        end=segment.end,
        predecessors=(),
        successors=(),
        opened_because=Reason.CREATE,
        sealed_because=Reason.ROLL,
        opened_at=0,
        sealed_at=0,
        file_list=segment.file_list,
    )
    sealed_index.append(store, TOPIC, UID, [entry], POLICY)
    return segment


def compact(store: Store, segment: StoredSegment, limits: MergeLimits = DEFAULT_LIMITS) -> StoredSegment:
    """The segment as the index has it after a compaction."""
    nonces = (f"n{i}" for i in itertools.count())
    merged = [
        file
        for run in plan_segment(store, segment)
        for file in merge_run(store, segment, run, KEY, nonces.__next__, limits)
    ]
    assert switch_file_list(store, segment, merged, "m", POLICY)
    (entry,) = sealed_index.read(store, TOPIC, UID)
    return StoredSegment.of(TOPIC, UID, entry)


@pytest.mark.parametrize("values", [[[2], [1]], [2, 1]])
def test_a_column_named_key_of_a_topic_without_a_key_is_no_key(values: list[object]) -> None:
    data = encode_compacted(pa.table({"key": values}), SEGMENT, 5, None)

    found = pq.read_table(pa.BufferReader(data))
    assert found.to_pydict() == {"key": values, OFFSET: [5, 6]}


def read(store: Store, segment: StoredSegment, start: int, stop: int, columns: list[str] | None = None) -> pa.Table:
    parts = list(read_range(store, segment, start, stop, columns))
    at = start
    for first, table in parts:
        assert first == at
        at += table.num_rows
    return pa.concat_tables([table.replace_schema_metadata() for _, table in parts])


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(open_store("memory://"))


def test_one_file_has_all_rows_sorted_by_key(store: CountingStore) -> None:
    before = stored_segment(store)
    rows = read(store, before, 0, 63)
    after = compact(store, before)
    file_list = read_file_list(store, TOPIC, UID, after.file_list)
    assert file_list is not None
    (file,) = file_list.files
    assert (file.first, file.rows, file.timestamp_min, file.timestamp_max) == (0, 63, 0, 62)
    assert (file.key_min, file.key_max) == ("text 0", "text 9")
    assert (file.appended_min, file.appended_max) == (0, 58)
    assert paths.is_compacted(file.path)
    assert paths.first_offset(file.path) is None
    stored = pq.read_table(pa.BufferReader(bytes(store.get(file.path).data)))
    assert stored.column(KEY).to_pylist() == sorted(stored.column(KEY).to_pylist())
    assert stored.sort_by("_offset").drop_columns(["_offset"]).equals(rows)


@given(start=st.integers(0, 62), rows=st.integers(1, 63), some=st.booleans())
def test_every_range_is_read_as_before(start: int, rows: int, some: bool) -> None:
    store = open_store("memory://")
    before = stored_segment(store)
    columns = ["blob", "number"] if some else None
    stop = min(start + rows, 63)
    expected = read(store, before, start, stop, columns)
    assert read(store, compact(store, before), start, stop, columns).equals(expected)


def test_each_small_file_takes_one_request(store: CountingStore) -> None:
    segment = stored_segment(store)
    (run,) = plan_segment(store, segment)
    store.reset()
    merge_run(store, segment, run, KEY, lambda: "n")
    assert sorted(store.requests.reads) == sorted(file.path for file in run.files)


@pytest.mark.parametrize("readers", [1, 2])
def test_no_more_files_than_that_are_read_ahead(store: CountingStore, readers: int) -> None:
    """Until the caller takes the first table, so that a run that decodes to much does not fill the memory."""
    segment = stored_segment(store)
    (run,) = plan_segment(store, segment)
    store.reset()
    tables = merging._tables(store, segment, run.files, readers, lambda: False)
    for taken in range(1, len(SIZES) + 1):
        next(tables)
        assert len(store.requests.reads) <= taken + readers - 1
    tables.close()


def test_an_interrupted_merge_writes_nothing_and_reads_no_further(store: CountingStore) -> None:
    segment = stored_segment(store)
    (run,) = plan_segment(store, segment)
    store.reset()
    with pytest.raises(MergeInterrupted):
        merge_run(store, segment, run, KEY, lambda: "n", MergeLimits(readers=1), lambda: len(store.requests.reads) == 2)
    assert len(store.requests.reads) == 2
    assert not list(store.list(paths.compacted_folder(TOPIC, UID, SEGMENT)))


def test_a_second_compaction_finds_nothing(store: CountingStore) -> None:
    assert plan_segment(store, compact(store, stored_segment(store))) == []


def test_rows_that_are_too_many_for_one_file_become_several(store: CountingStore) -> None:
    before = stored_segment(store)
    rows = read(store, before, 0, 63)
    after = compact(store, before, MergeLimits(decoded_bytes=1500))
    file_list = read_file_list(store, TOPIC, UID, after.file_list)
    assert file_list is not None
    assert 1 < len(file_list.files) < len(SIZES)
    assert read(store, after, 0, 63).equals(rows)


def test_a_segment_that_retention_removed_keeps_its_old_file_list(store: CountingStore) -> None:
    segment = stored_segment(store)
    (run,) = plan_segment(store, segment)
    merged = merge_run(store, segment, run, KEY, lambda: "n")
    sealed_index.remove(store, TOPIC, UID, [RemovedSegment(name=SEGMENT, number=0, end=63, removed_at=0)], POLICY)
    assert not switch_file_list(store, segment, merged, "m", POLICY)


def test_the_second_of_two_compactions_changes_nothing(store: CountingStore) -> None:
    segment = stored_segment(store)
    (run,) = plan_segment(store, segment)
    mine = merge_run(store, segment, run, KEY, lambda: "mine")
    after = compact(store, segment)
    assert not switch_file_list(store, segment, mine, "mine", POLICY)
    assert sealed_index.read(store, TOPIC, UID)[0].file_list == after.file_list


def test_a_switch_can_be_repeated(store: CountingStore) -> None:
    segment = stored_segment(store)
    (run,) = plan_segment(store, segment)
    merged = merge_run(store, segment, run, KEY, lambda: "n")
    assert switch_file_list(store, segment, merged, "m", POLICY)
    assert switch_file_list(store, segment, merged, "m", POLICY)


class UnclearStore(CountingStore):
    """Its first ``failures`` creations end with this error, whether the object was written or not."""

    def __init__(self, store: Store, error: Exception, failures: int = 1) -> None:
        super().__init__(store)
        self.error, self.failures = error, failures

    def put_new(self, path: str, data: Data) -> str:
        etag = super().put_new(path, data)
        self.failures -= 1
        if self.failures >= 0:
            raise self.error
        return etag


@pytest.mark.parametrize("error", [StoreStateUnknown("no answer"), ObjectExists("a conflict")])
def test_a_write_without_a_clear_answer_is_repeated_under_another_name(store: CountingStore, error: Exception) -> None:
    segment = stored_segment(store)
    (run,) = plan_segment(store, segment)
    nonces = iter(["a", "b"])
    (file,) = merge_run(UnclearStore(store, error), segment, run, KEY, lambda: next(nonces))
    assert file.path.endswith("-b.parquet")


@pytest.mark.parametrize("error", [StoreStateUnknown("no answer"), ObjectExists("a conflict")])
def test_a_write_that_never_gets_a_clear_answer_ends_with_an_error(store: CountingStore, error: Exception) -> None:
    segment = stored_segment(store)
    (run,) = plan_segment(store, segment)
    with pytest.raises(StoreStateUnknown):
        merge_run(UnclearStore(store, error, 100), segment, run, KEY, lambda: uuid.uuid4().hex)


def test_a_damaged_compacted_file_is_named(store: CountingStore) -> None:
    after = compact(store, stored_segment(store))
    file_list = read_file_list(store, TOPIC, UID, after.file_list)
    assert file_list is not None
    (file,) = file_list.files
    table = pq.read_table(pa.BufferReader(bytes(store.get(file.path).data)))
    offsets = pa.array([1, *table.column("_offset").to_pylist()[1:]], pa.int64())
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(table.schema.get_field_index("_offset"), "_offset", offsets), sink)
    etag = store.put(file.path, sink.getvalue())
    damaged = replace(file, etag=etag)
    from smq_storage.tables.range_reader import read_file

    with pytest.raises(CorruptChunk, match="offsets 0 to 62 once"):
        list(read_file(store, SEGMENT, damaged, 0, 63))
    store.delete(file.path)
    with pytest.raises(DataLost, match="_compacted"):
        list(read_file(store, SEGMENT, file, 0, 63))
