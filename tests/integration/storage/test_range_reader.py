"""Reads of a range against SeaweedFS: what is requested of a large chunk, and a file that is gone or altered."""

from __future__ import annotations

import pytest

from smq_core.errors import CorruptChunk, DataLost
from smq_core.model.chunk_info import ChunkInfo
from smq_storage.catalog import paths
from smq_storage.chunks import parquet_codec
from smq_storage.chunks.chain import ChunkChain, StoredChunk
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.object_store.store import Store
from smq_storage.tables.file_lists import read_file_list
from smq_storage.tables.file_statistics import file_entry
from smq_storage.tables.range_reader import read_range
from support.data.stored_segment import COLUMNS, SEGMENT, TOPIC, UID, CountingStore, rows_of, write_segment

GROUP = 10_000
ROWS = 5 * GROUP


@pytest.fixture
def store(filer_store: Store) -> CountingStore:
    return CountingStore(filer_store)


def test_a_few_rows_of_a_large_chunk_do_not_fetch_it(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_codec, "ROW_GROUP_ROWS", GROUP)
    segment = write_segment(store, ROWS, blob_bytes=400)
    size = ChunkChain(store, TOPIC, UID, SEGMENT).files()[0].size
    assert size > 16 * 1024 * 1024

    def read(start: int, stop: int, columns: list[str] | None) -> tuple[int, int, int]:
        """Requests besides the file list, their bytes, and rows."""
        store.reset()
        rows = 0
        for first, table in read_range(store, segment, start, stop, columns):
            assert columns == ["blob"] or table.column("number")[0].as_py() == first == start + rows
            rows += table.num_rows
        file_list = store.get(paths.file_list(TOPIC, UID, segment.file_list)).data
        return len(store.requests.reads) - 2, store.requests.bytes - 2 * len(file_list), rows

    assert read(0, ROWS, None) == (1, size, ROWS), "all of it is one request"
    requests, nbytes, rows = read(3 * GROUP + 5, 3 * GROUP + 25, None)
    assert (requests, rows) == (2, 20), "the footer and one row group"
    assert nbytes < size / 4
    requests, nbytes, rows = read(0, ROWS, ["number"])
    assert (requests, rows) == (1 + 5, ROWS), "the footer and one column of each row group"
    assert nbytes < size / 4
    requests, nbytes, rows = read(GROUP - 5, GROUP + 5, ["number", "appended"])
    assert (requests, rows) == (1 + 2, 10), "the footer and two neighbouring columns of two row groups"
    assert nbytes < size / 8


def test_the_etag_of_the_writer_is_the_etag_of_readers(store: CountingStore) -> None:
    segment = write_segment(store, 10, 10)
    chain = ChunkChain(store, TOPIC, UID, SEGMENT)
    other = ChunkChain(store, TOPIC, UID, "t-0-8-1")
    written = other.put(
        ChunkInfo(segment="t-0-8-1", first=0, rows=5, writer="w", nonce="n"),
        [(rows_of(0, 5), 1)],
        chunk_schema(COLUMNS),
    )
    assert isinstance(written, StoredChunk)
    assert file_entry(written, "number") == file_entry(other.stored(0) or written._replace(etag=""), "number")
    file_list = read_file_list(store, TOPIC, UID, segment.file_list)
    assert file_list is not None
    assert list(file_list.files) == [file_entry(c, "number") for c in chain.walk_stored() if not c.info.sealed]
    assert [file.etag for file in file_list.files] == [store.get(file.path).etag for file in file_list.files]


def test_a_vanished_file_and_an_altered_one_are_named(store: CountingStore) -> None:
    segment = write_segment(store, 10, 10, 10)
    path = paths.chunk(TOPIC, UID, SEGMENT, 10)
    data = bytes(store.get(path).data)
    store.put(path, data[:100] + bytes([data[100] ^ 1]) + data[101:])
    with pytest.raises(CorruptChunk, match=path):
        list(read_range(store, segment, 0, 30))
    store.delete(path)
    with pytest.raises(DataLost, match=path) as raised:
        list(read_range(store, segment, 15, 30))
    assert (raised.value.start, raised.value.stop) == (15, 20)
