"""Which batches a broker accepts. A batch that cannot be written in a chunk would block its segment forever."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from smq_broker.rows.batches import WireSchemas
from smq_broker.rows.blocks import COPY_BELOW_BYTES, ArrowBlock
from smq_core.errors import SchemaMismatch
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Column, Topic, TopicSpec
from smq_storage.chunks.parquet_codec import encode_chunk
from smq_storage.chunks.schemas import message_schema

WIRE = WireSchemas.of(Topic("default/clicks", "u", TopicSpec()))
SCHEMA = WIRE.message


def batch(partitions: list[int], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    size = len(partitions)
    columns = [pa.array(partitions, pa.int32()), pa.array([1] * size, schema.field(1).type)]
    columns += [pa.nulls(size, field.type) for field in list(schema)[2:]]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def taken(given: pa.RecordBatch) -> pa.RecordBatch:
    """Validates a stream of these batches as the broker does. An accepted batch can be encoded."""
    accepted = ArrowBlock(given).accept(WIRE, WIRE.check_stream(given.schema)).to_arrow()
    encode_chunk(
        [(accepted, 1)], ChunkInfo(segment="s", first=0, rows=accepted.num_rows, writer="w", nonce="n"), WIRE.chunk
    )
    return accepted


def test_a_small_batch_is_copied_and_a_large_one_taken_as_it_is() -> None:
    small, large = batch([1, 2]), batch(list(range(COPY_BELOW_BYTES)))
    assert taken(small).equals(small) and taken(small) is not small
    assert taken(large) is large


def test_nullability_that_is_only_declared_differently_is_fine() -> None:
    loose = pa.schema([field.with_nullable(True) for field in SCHEMA])
    assert taken(batch([1, 2], loose)).schema.equals(SCHEMA)


def test_metadata_of_the_schema_does_not_matter() -> None:
    assert taken(batch([1], SCHEMA.with_metadata({"pandas": "x"}))).equals(batch([1]))


def test_a_column_whose_name_is_no_text_is_refused() -> None:
    """Arrow takes any bytes for a name, and fails when somebody reads it."""
    with pa.ipc.new_stream(sink := pa.BufferOutputStream(), SCHEMA.set(4, SCHEMA.field(4).with_name("\u0101\u0102"))):
        pass
    encoded = sink.getvalue().to_pybytes().replace("\u0101\u0102".encode(), b"\xff\xfe\xff\xfe")
    with pytest.raises(SchemaMismatch, match="no UTF-8"):
        WIRE.check_stream(pa.ipc.open_stream(encoded).schema)


@pytest.mark.parametrize("column", [0, 1])
def test_nulls_where_none_may_be_are_refused(column: int) -> None:
    good = batch([1, 2])
    columns = list(good.columns)
    columns[column] = pa.nulls(2, SCHEMA.field(column).type)
    bad = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    with pytest.raises(SchemaMismatch, match=SCHEMA.field(column).name):
        taken(bad)


@pytest.mark.parametrize(
    "other",
    [
        SCHEMA.remove(2),
        SCHEMA.append(pa.field("more", pa.int8())),
        SCHEMA.set(0, pa.field("partition", pa.int64())),
        SCHEMA.set(3, pa.field("payload", pa.binary())),
        message_schema([Column("a", "int32", True)]),
    ],
    ids=["missing", "too many", "other type", "other name", "typed"],
)
def test_other_columns_are_refused_with_the_schema_expected(other: pa.Schema) -> None:
    columns = [pa.array([0], field.type) if not field.nullable else pa.nulls(1, field.type) for field in other]
    with pytest.raises(SchemaMismatch) as caught:
        taken(pa.RecordBatch.from_arrays(columns, schema=other))
    assert "value binary" in str(caught.value.expected)


def test_a_damaged_batch_from_the_wire_is_refused() -> None:
    empty = batch([1, 2])
    values = pa.array([b"abc", b"def"], pa.binary())
    good = pa.RecordBatch.from_arrays([*empty.columns[:3], values, empty.column(4)], schema=SCHEMA)
    wire = bytes(good.serialize())
    offsets, damaged = struct.pack("<3i", 0, 3, 6), struct.pack("<3i", 0, 3, 1 << 30)
    assert wire.count(offsets) == 1
    bad = pa.ipc.read_record_batch(pa.py_buffer(wire.replace(offsets, damaged)), SCHEMA)
    with pytest.raises(SchemaMismatch, match="damaged"):
        taken(bad)


def test_nulls_inside_headers_are_writable() -> None:
    pairs = pa.StructArray.from_arrays([pa.array([None, "a"], pa.string()), pa.array([b"x", None])], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pairs)
    plain = batch([1])
    given = pa.RecordBatch.from_arrays([*plain.columns[:4], headers], schema=SCHEMA)
    assert taken(given).equals(given)


@pytest.mark.parametrize("partitions", [[7], [5, 3, 9]])
def test_bounds_of_the_partitions(partitions: list[int]) -> None:
    block = ArrowBlock(batch([0, *partitions, 10]))
    assert block.partition_bounds(1, len(partitions)) == (min(partitions), max(partitions))
