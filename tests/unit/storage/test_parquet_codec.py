"""The Parquet codec: what is written is read back, by us and by others."""

import io

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.errors import CorruptChunk, SchemaMismatch
from smq_core.model.chunk_info import ChunkInfo, ProducerState
from smq_core.model.entities import Column
from smq_core.model.loss import Loss
from smq_storage.chunks.column_types import arrow_type
from smq_storage.chunks.parquet_codec import (
    KEY,
    PAGE_BYTES,
    ROW_GROUP_ROWS,
    TAIL_BYTES,
    decode_info,
    encode_chunk,
    footer_bytes,
    page_rows,
    read_chunk,
)
from smq_storage.chunks.schemas import TIMESTAMP, chunk_schema, message_schema

INFO = ChunkInfo(segment="flights-0", first=100, rows=3, writer="incarnation", nonce="n1")
COLUMNS = (Column("tailnum", "string"), Column("delay", "float64", nullable=True))
# A time that fits: years 1 to 9999, in microseconds.
TIMES = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)

VALUES = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(),
    "binary": st.binary(),
    "date32": st.dates(),
    "timestamp[us, UTC]": TIMES,
    "timestamp[us]": TIMES,
    "decimal128(10, 2)": st.decimals(min_value=-(10**7), max_value=10**7, places=2),
    "list<int32>": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
}


def messages(*rows: tuple, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Rows of (partition, timestamp, key, value, headers)."""
    schema = schema or message_schema()
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


THREE = messages(
    (1, 1_000_000, b"k1", b"v1", None),
    (2, 2_000_000, None, b"", [{"key": "h", "value": b"x"}, {"key": "i", "value": None}]),
    (1, 3_000_000, b"", None, []),
)


def test_pages_of_all_columns_have_as_many_rows_as_those_of_the_widest_one() -> None:
    rows = pa.table({"number": pa.array(range(64), pa.int64()), "value": [b"x" * PAGE_BYTES] * 64})
    assert page_rows(rows) == 1
    assert page_rows(rows.select(["number"])) == ROW_GROUP_ROWS
    assert page_rows(rows.slice(0, 0)) >= 1


def test_readers_find_pages_by_an_index() -> None:
    columns = pq.ParquetFile(pa.BufferReader(encode_chunk([(THREE, 111)], INFO, chunk_schema()))).metadata.row_group(0)
    with_statistics = [columns.column(n) for n in range(4)]  # partition, timestamp, appended, key
    assert all(it.has_offset_index and it.has_column_index for it in with_statistics)


def test_rows_come_back_with_the_time_they_were_appended() -> None:
    more = messages((7, 4_000_000, b"k", b"v", None))
    data = encode_chunk([(THREE, 111), (more, 222)], INFO, chunk_schema())
    info, table = read_chunk(data)
    assert info == INFO
    assert table.schema.equals(chunk_schema())
    assert table.column("appended").cast(pa.int64()).to_pylist() == [111, 111, 111, 222]
    expected = pa.Table.from_batches([THREE, more])
    assert table.drop_columns(["appended"]).equals(expected)


def test_each_row_may_have_its_own_time() -> None:
    times = pa.array([10, 20, 30], TIMESTAMP)
    _, table = read_chunk(encode_chunk([(THREE, times)], INFO, chunk_schema()))
    assert table.column("appended").combine_chunks().equals(times)
    with pytest.raises(SchemaMismatch):
        encode_chunk([(THREE, times[:2])], INFO, chunk_schema())


def test_a_topic_schema_stands_in_the_place_of_key_and_value() -> None:
    assert message_schema(COLUMNS).names == ["partition", "timestamp", "tailnum", "delay", "headers"]
    batch = messages((1, 5, "N1", 2.5, None), (1, 6, "N2", None, None), schema=message_schema(COLUMNS))
    _, table = read_chunk(encode_chunk([(batch, 9)], INFO, chunk_schema(COLUMNS)))
    assert table.column("tailnum").to_pylist() == ["N1", "N2"]
    assert table.column("delay").to_pylist() == [2.5, None]


def test_a_seal_chunk_has_no_rows_and_says_what_became_of_the_producers() -> None:
    seal = ChunkInfo(
        segment="s",
        first=500,
        rows=0,
        writer="w",
        nonce="n",
        sealed=True,
        producers={"p": ProducerState(epoch=3, last_sequence=41, recent=(480, 490))},
        lost=Loss(500, 510),
    )
    data = encode_chunk([], seal, chunk_schema())
    assert decode_info(data) == seal
    assert read_chunk(data)[1].num_rows == 0


def test_the_state_of_a_producer_comes_back() -> None:
    producers = {
        "p": ProducerState(
            epoch=3, last_sequence=41, recent=(480, 490, 495), instance="instance", appended=1_700_000_000_000_000
        ),
        "inherited": ProducerState(epoch=1, last_sequence=-1, recent=()),
    }
    info = ChunkInfo(segment="s", first=500, rows=0, writer="w", nonce="n", producers=producers)
    assert decode_info(encode_chunk([], info, chunk_schema())) == info


def test_the_rows_in_the_info_are_not_those_of_the_file() -> None:
    reference = ChunkInfo(segment="s", first=0, rows=1_000_000, writer="w", nonce="n")
    assert decode_info(encode_chunk([], reference, chunk_schema())).end == 1_000_000


def test_the_end_of_the_file_is_enough_for_the_info() -> None:
    data = memoryview(encode_chunk([(THREE, 1)] * 1000, INFO, chunk_schema()))
    need = footer_bytes(data[-8:])
    assert need < TAIL_BYTES
    assert decode_info(data[-need:]) == INFO


def test_long_values_do_not_make_the_footer_long() -> None:
    batch = messages((1, 1, b"k" * 100_000, b"v" * 1_000_000, None))
    assert footer_bytes(encode_chunk([(batch, 1)], INFO, chunk_schema())) < 10_000


def test_statistics_are_there_for_what_readers_filter_by() -> None:
    data = encode_chunk([(THREE, 777)], INFO, chunk_schema())
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    bounds = {group.column(i).path_in_schema: group.column(i).statistics for i in range(group.num_columns)}
    assert (bounds["partition"].min, bounds["partition"].max) == (1, 2)
    assert bounds["appended"].min.timestamp() == 777 / 1e6
    assert bounds["value"] is None


def test_duckdb_reads_the_rows_and_the_info(tmp_path) -> None:
    path = tmp_path / "chunk.parquet"
    path.write_bytes(encode_chunk([(THREE, 1)], INFO, chunk_schema()))
    rows = duckdb.sql(f"SELECT partition, key, value FROM '{path}' ORDER BY timestamp").fetchall()
    assert rows == [(1, b"k1", b"v1"), (2, None, b""), (1, b"", None)]
    query = f"SELECT decode(value) FROM parquet_kv_metadata('{path}') WHERE decode(key) = '{KEY}'"
    ((text,),) = duckdb.sql(query).fetchall()
    assert '"first":100' in text and '"rows":3' in text and '"segment":"flights-0"' in text


def test_unknown_fields_of_a_newer_version_are_ignored() -> None:
    table = pa.table({"partition": pa.array([], pa.int32())}).replace_schema_metadata(
        {KEY: '{"segment":"s","first":1,"rows":2,"writer":"w","nonce":"n","invented":{"later":1}}'}
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    assert decode_info(sink.getvalue()) == ChunkInfo(segment="s", first=1, rows=2, writer="w", nonce="n")


def foreign_parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    "data",
    [b"", b"PAR1", b"not parquet at all", foreign_parquet(), foreign_parquet()[-20:], b"\xff" * 4 + b"PAR1"],
    ids=["empty", "magic only", "text", "no info", "cut off", "absurd footer"],
)
def test_what_is_not_a_chunk_is_damaged(data: bytes) -> None:
    with pytest.raises(CorruptChunk):
        decode_info(data)
    with pytest.raises(CorruptChunk):
        read_chunk(data)


def test_a_batch_of_other_columns_is_refused() -> None:
    with pytest.raises(SchemaMismatch):
        encode_chunk([(THREE.select(["partition", "timestamp"]), 1)], INFO, chunk_schema())
    with pytest.raises(SchemaMismatch):
        encode_chunk([(THREE, 1)], INFO, chunk_schema(COLUMNS))


header = st.fixed_dictionaries({"key": st.text(), "value": st.none() | st.binary()})
row = st.tuples(
    st.integers(0, 65_535), TIMES, st.none() | st.binary(), st.none() | st.binary(), st.none() | st.lists(header)
)


@given(st.lists(st.tuples(st.lists(row, max_size=5), TIMES), max_size=4))
def test_any_messages_come_back(batches) -> None:
    given_batches = [(messages(*rows), appended) for rows, appended in batches]
    _, table = read_chunk(encode_chunk(given_batches, INFO, chunk_schema()))
    expected = [row for batch, _ in given_batches for row in batch.to_pylist()]
    assert table.drop_columns(["appended"]).to_pylist() == expected
    times = [appended for batch, appended in given_batches for _ in range(batch.num_rows)]
    assert table.column("appended").cast(pa.int64()).to_pylist() == times


@given(st.data(), st.lists(st.tuples(st.sampled_from(sorted(VALUES)), st.booleans()), min_size=1, max_size=6))
def test_any_typed_columns_come_back(data, types) -> None:
    columns = tuple(Column(f"c{i}", type_, nullable) for i, (type_, nullable) in enumerate(types))
    schema, size = message_schema(columns), data.draw(st.integers(0, 4))
    arrays = [pa.array([0] * size, pa.int32()), pa.array([0] * size, schema.field("timestamp").type)]
    for column in columns:
        value = VALUES[column.type]
        values = data.draw(st.lists(st.none() | value if column.nullable else value, min_size=size, max_size=size))
        arrays.append(pa.array(values, arrow_type(column.type)))
    arrays.append(pa.nulls(size, schema.field("headers").type))
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    _, table = read_chunk(encode_chunk([(batch, 5)], INFO, chunk_schema(columns)))
    assert table.schema.equals(chunk_schema(columns))
    assert table.drop_columns(["appended"]).equals(pa.Table.from_batches([batch]))


names = st.text(min_size=1, max_size=20)
offsets = st.integers(0, 2**63)
increasing = st.lists(offsets, max_size=5).map(sorted).map(tuple)
states = st.builds(
    ProducerState,
    epoch=offsets,
    last_sequence=st.integers(-1, 2**63),
    recent=increasing,
    instance=st.text(max_size=16),
    appended=offsets,
)


@given(
    st.builds(
        ChunkInfo,
        segment=names,
        first=offsets,
        rows=offsets,
        writer=names,
        nonce=names,
        sealed=st.booleans(),
        producers=st.dictionaries(names, states, max_size=4),
        lost=st.none() | st.builds(Loss, offsets, offsets, st.booleans()),
        snapshot_at=st.none() | offsets,
        forgotten=st.lists(names, max_size=3).map(tuple),
        forgotten_upto=offsets,
        uninherited=st.lists(names, max_size=3).map(tuple),
    )
)
def test_any_info_comes_back(info: ChunkInfo) -> None:
    assert decode_info(encode_chunk([], info, chunk_schema())) == info
