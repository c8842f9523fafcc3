"""Which batches are accepted. What passes here must always be writable as a chunk."""

import struct

import pyarrow as pa
import pytest

from smq_core.errors import SchemaMismatch, WrongPartition
from smq_core.model import ChunkInfo, Column
from smq_storage.chunks import encode_chunk
from smq_storage.schemas import arrow_type, check_batch, chunk_schema, message_schema, partition_bounds

SCHEMA = message_schema()


def batch(partitions: list[int | None], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    size = len(partitions)
    columns = [pa.array(partitions, pa.int32()), pa.array([1] * size, schema.field(1).type)]
    columns += [pa.nulls(size, field.type) for field in list(schema)[2:]]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def writable(checked: pa.RecordBatch) -> None:
    encode_chunk([(checked, 1)], ChunkInfo("s", 0, checked.num_rows, "w", "n"), chunk_schema())


def test_a_batch_of_the_schema_is_taken_as_it_is() -> None:
    good = batch([1, 2])
    assert check_batch(good, SCHEMA) is good
    writable(good)


def test_nullability_that_is_only_declared_differently_is_fine() -> None:
    loose = pa.schema([field.with_nullable(True) for field in SCHEMA])
    checked = check_batch(batch([1, 2], loose), SCHEMA)
    assert checked.schema.equals(SCHEMA)
    writable(checked)


def test_metadata_of_the_schema_does_not_matter() -> None:
    writable(check_batch(batch([1], SCHEMA.with_metadata({"pandas": "x"})), SCHEMA))


@pytest.mark.parametrize("column", [0, 1])
def test_nulls_where_none_may_be_are_refused(column: int) -> None:
    good = batch([1, 2])
    columns = list(good.columns)
    columns[column] = pa.nulls(2, SCHEMA.field(column).type)
    bad = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    with pytest.raises(SchemaMismatch, match=SCHEMA.field(column).name):
        check_batch(bad, SCHEMA)


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
        check_batch(pa.RecordBatch.from_arrays(columns, schema=other), SCHEMA)
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
        check_batch(bad, SCHEMA)


def test_nulls_inside_headers_are_writable() -> None:
    pairs = pa.StructArray.from_arrays([pa.array([None, "a"], pa.string()), pa.array([b"x", None])], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pairs)
    plain = batch([1])
    writable(check_batch(pa.RecordBatch.from_arrays([*plain.columns[:4], headers], schema=SCHEMA), SCHEMA))


def test_bounds_of_the_partitions() -> None:
    assert partition_bounds(batch([5, 3, 9])) == (3, 9)
    with pytest.raises(WrongPartition):
        partition_bounds(batch([]))


@pytest.mark.parametrize("name", ["flot64", "int", "decimal128(50, 1)", "decimal128(3, 4)", "list<nope>", "", "map"])
def test_unknown_types_are_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(ValueError, match=r"float64|precision"):
        arrow_type(name)
