"""From a chunk to its entry in a file list: times, bounds of keys, and the same entry from writer and reader."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from smq_core.errors import CorruptChunk
from smq_core.file_lists.file_list import FileEntry
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Column
from smq_storage.chunks import parquet_codec
from smq_storage.chunks.chain import ChunkChain, StoredChunk
from smq_storage.chunks.parquet_codec import decode_footer, encode_chunk
from smq_storage.chunks.schemas import chunk_schema, message_schema
from smq_storage.object_store.store import open_store
from smq_storage.tables.file_statistics import file_entry

SEGMENT = "t-0-8-0"


def batch(keys: list[Any], type_: str = "binary", timestamps: list[int] | None = None) -> pa.RecordBatch:
    columns = (Column("id", type_, nullable=True),) if type_ != "binary" else ()
    schema = message_schema(columns)
    name = "id" if columns else "key"
    times = timestamps or list(range(len(keys)))
    rows = [{"partition": 0, "timestamp": at, name: key} for at, key in zip(times, keys, strict=True)]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def put(chain: ChunkChain, rows: pa.RecordBatch, type_: str = "binary", appended: int = 7) -> StoredChunk:
    columns = (Column("id", type_, nullable=True),) if type_ != "binary" else ()
    info = ChunkInfo(segment=SEGMENT, first=0, rows=rows.num_rows, writer="w", nonce="n", schema_version=3)
    stored = chain.put(info, [(rows, appended)], chunk_schema(columns), key="id" if columns else "key")
    assert isinstance(stored, StoredChunk)
    return stored


@pytest.fixture
def chain() -> ChunkChain:
    return ChunkChain(open_store("memory://"), "ns/t", "uid", SEGMENT)


def text(key: bytes) -> str:
    return b64encode(key).decode()


def test_the_writer_and_whoever_walks_the_chain_get_the_same_entry(chain: ChunkChain) -> None:
    stored = put(chain, batch([b"m", None, b"a"], timestamps=[30, 10, 20]))
    found = chain.stored(0)
    assert found is not None
    entry = file_entry(stored, None)
    assert entry == file_entry(found, None)
    assert entry == FileEntry(
        path=chain.path(0),
        first=0,
        rows=3,
        bytes=stored.bytes,
        etag=stored.etag,
        timestamp_min=10,
        timestamp_max=30,
        appended_min=7,
        appended_max=7,
        key_min=text(b"a"),
        key_max=text(b"m"),
        schema_version=3,
    )
    assert stored.bytes == chain.files()[0].size


def test_bounds_reach_over_all_row_groups(chain: ChunkChain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_codec, "ROW_GROUP_ROWS", 2)
    stored = put(chain, batch([b"m", b"k", None, None, b"z", b"b"], timestamps=[9, 8, 1, 99, 5, 5]))
    assert stored.footer.num_row_groups == 3
    entry = file_entry(stored, None)
    assert (entry.timestamp_min, entry.timestamp_max, entry.key_min, entry.key_max) == (1, 99, text(b"b"), text(b"z"))


def test_a_chunk_of_many_rows_has_row_groups_of_limited_size() -> None:
    rows = 2 * parquet_codec.ROW_GROUP_ROWS + 1
    assert parquet_codec.ROW_GROUP_ROWS <= 128 * 1024
    many = pa.RecordBatch.from_arrays(
        [pa.repeat(pa.scalar(0, f.type), rows) if not f.nullable else pa.nulls(rows, f.type) for f in message_schema()],
        schema=message_schema(),
    )
    footer = decode_footer(
        encode_chunk([(many, 1)], ChunkInfo(segment=SEGMENT, first=0, rows=rows, writer="w", nonce="n"), chunk_schema())
    )
    assert [footer.row_group(i).num_rows for i in range(3)] == [parquet_codec.ROW_GROUP_ROWS] * 2 + [1]


@pytest.mark.parametrize("long", [[b"a" * 65, b"b"], [b"c" * 5000, b"d", None]])
def test_long_keys_have_short_bounds_and_a_short_footer(chain: ChunkChain, long: list[Any]) -> None:
    stored = put(chain, batch(long))
    entry = file_entry(stored, None)
    keys = [key for key in long if key]
    assert (entry.key_min, entry.key_max) == (text(min(keys)[:64]), text(max(keys)))
    assert stored.footer.serialized_size < 3000


def test_keys_of_a_schema(chain: ChunkChain) -> None:
    cases: list[tuple[str, list[Any], tuple[Any, Any]]] = [
        ("int32", [5, -3, None], (-3, 5)),
        ("uint64", [2**64 - 1, 1], (1, 2**64 - 1)),
        ("string", ["é", "a"], ("a", "é")),
        ("string", ["x" * 100, "y" * 100], ("x" * 64, "y" * 63 + "z")),
        ("date32", [date(1970, 1, 3), date(1970, 1, 2)], (1, 2)),
        ("timestamp[us, UTC]", [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], (1_000_000, 1_000_000)),
        ("string", [None, None], (None, None)),
        ("float64", [1.5], (None, None)),
        ("bool", [True], (None, None)),
        ("decimal128(10, 2)", [1], (None, None)),
        ("list<int32>", [[1]], (None, None)),
    ]
    for number, (type_, keys, expected) in enumerate(cases):
        at = ChunkChain(open_store("memory://"), "ns/t", f"uid{number}", SEGMENT)
        entry = file_entry(put(at, batch(keys, type_), type_), "id")
        assert (entry.key_min, entry.key_max) == expected, type_


def test_a_slice_of_a_batch_has_the_bounds_of_the_slice(chain: ChunkChain) -> None:
    entry = file_entry(put(chain, batch([b"a" * 500, b"k", b"l", b"z" * 500]).slice(1, 2)), None)
    assert (entry.key_min, entry.key_max) == (text(b"k"), text(b"l"))


def test_a_file_without_statistics_has_no_bounds(chain: ChunkChain) -> None:
    stored = put(chain, batch([b"k"]))
    entry = file_entry(stored, "no-such-column")
    assert (entry.key_min, entry.key_max) == (None, None)


def test_a_file_with_other_rows_than_its_metadata_says_is_refused(chain: ChunkChain) -> None:
    stored = put(chain, batch([b"k"]))
    with pytest.raises(CorruptChunk, match="has 1 rows, but its metadata says 2"):
        file_entry(stored._replace(info=ChunkInfo(segment=SEGMENT, first=0, rows=2, writer="w", nonce="n")), None)
