"""Spark types for the columns of a topic, and Arrow batches exactly as Spark wants them.

==============================  =================  ==============================================================
column of the topic             Spark              note
==============================  =================  ==============================================================
bool, int8 to int64             boolean, byte to   the same
                                bigint
uint8, uint16, uint32           smallint, int,     Spark has no unsigned numbers
                                bigint
uint64                          decimal(20,0)
float32, float64                float, double      the same
decimal128(p, s)                decimal(p, s)      the same
string, binary, date32          string, binary,    the same; date is date32
                                date
dictionary<string>              string             of bytes: binary
struct<name: T>                 struct<name: T>    nested as deep as one likes
timestamp[us, UTC]              timestamp          shown in the session's time zone
timestamp[us]                   timestamp_ntz      has no zone
list<T>                         array<T>           nested as deep as one likes
headers                         array<struct<key string, value binary>>
==============================  =================  ==============================================================

Spark cannot read a topic with a column of another type: maps, times of day, timestamps of other units and zones, and
decimal256.

Every column may be null in Spark, also one that never is: Spark's optimizer must not rely on what only the topic's
present schema says. Spark compares the first batch of a task with its own Arrow schema, and trusts the others, so every
batch is cast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_smq.errors import InvalidOption, UnreadableSchema, nearest
from smq_storage.chunks.reshaping import is_wider

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

SEGMENT, OFFSET = "_segment", "_offset"
"""Columns that every DataFrame has after those of the topic: where a message is in the log."""

# Spark's side keeps a whole batch in memory, beside the rows that it makes of it.
BATCH_BYTES = 8 * 1024 * 1024

_UINT64 = pa.decimal128(20, 0)


def dataframe_columns(chunk_schema: pa.Schema) -> StructType:
    """All columns of a DataFrame of a topic with this ``chunk_schema``. Raises UnreadableSchema."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    taken = [name for name in chunk_schema.names if name.lower() in (SEGMENT, OFFSET)]
    if taken:
        raise UnreadableSchema(
            f"the topic has a column {taken[0]!r}, and every DataFrame of a topic has one of its own with that name: "
            "Spark cannot read this topic"
        )
    fields = [StructField(field.name, _type_of_column(field)) for field in chunk_schema]
    return StructType([*fields, StructField(SEGMENT, StringType()), StructField(OFFSET, LongType())])


def spark_schema(chunk_schema: pa.Schema, columns: Sequence[str] | None = None) -> StructType:
    """The columns of a DataFrame, or those of them that are chosen, in that order. Raises InvalidOption."""
    from pyspark.sql.types import StructType

    everything = dataframe_columns(chunk_schema)
    if columns is None:
        return everything
    known = {field.name: field for field in everything}
    for name in columns:
        if name not in known:
            raise InvalidOption(
                f"the topic has no column {name!r}{nearest(name, known)}; its columns are {', '.join(known)}",
                option="columns",
            )
    return StructType([known[name] for name in columns])


def _type_of_column(field: pa.Field) -> DataType:
    try:
        return spark_type(field.type)
    except UnreadableSchema as error:
        raise UnreadableSchema(
            f"column {field.name!r}: {error.message}: Spark cannot read this topic. A program with smq.Consumer can"
        ) from None


def spark_type(type_: pa.DataType) -> DataType:
    """The Spark type of a column's Arrow type. Raises UnreadableSchema for a type that no topic has."""
    from pyspark.sql import types as spark

    if pa.types.is_list(type_):
        return spark.ArrayType(spark_type(type_.value_type))
    if pa.types.is_struct(type_):
        return spark.StructType([spark.StructField(field.name, spark_type(field.type)) for field in type_])
    if pa.types.is_decimal128(type_):
        return spark.DecimalType(type_.precision, type_.scale)
    found = {
        pa.bool_(): spark.BooleanType(),
        pa.int8(): spark.ByteType(),
        pa.int16(): spark.ShortType(),
        pa.int32(): spark.IntegerType(),
        pa.int64(): spark.LongType(),
        pa.uint8(): spark.ShortType(),
        pa.uint16(): spark.IntegerType(),
        pa.uint32(): spark.LongType(),
        pa.uint64(): spark.DecimalType(20, 0),
        pa.float32(): spark.FloatType(),
        pa.float64(): spark.DoubleType(),
        pa.string(): spark.StringType(),
        pa.binary(): spark.BinaryType(),
        pa.date32(): spark.DateType(),
        pa.timestamp("us", tz="UTC"): spark.TimestampType(),
        pa.timestamp("us"): spark.TimestampNTZType(),
    }.get(type_)
    if found is None:
        raise UnreadableSchema(f"Spark has no type for {type_}")
    return found


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of batches with these columns."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def check_schema(schema: StructType, chunk_schema: pa.Schema) -> None:
    """Whether a DataFrame of a topic with this ``chunk_schema`` has such columns. Call it once the topic is read.

    A user may choose columns by ``schema()``, and the topic's schema may have changed after Spark asked for it.
    Raises UnreadableSchema with a difference for each column.
    """
    known = {field.name: field for field in dataframe_columns(chunk_schema)}
    difference = []
    for field in schema:
        mine = known.get(field.name)
        if mine is None:
            difference.append(f"the topic has no column {field.name!r}{nearest(field.name, known)}")
        elif field.dataType != mine.dataType:
            found, wanted = mine.dataType.simpleString(), field.dataType.simpleString()
            difference.append(f"column {field.name!r} is {found}, not {wanted}")
        elif not field.nullable:
            difference.append(f"column {field.name!r} must be nullable")
    if difference:
        raise UnreadableSchema(
            f"the topic cannot be read with this schema: {'; '.join(difference)}", difference=tuple(difference)
        )


def topic_columns(schema: pa.Schema) -> list[str]:
    """The columns of the topic that batches of this schema need."""
    return [name for name in schema.names if name not in (SEGMENT, OFFSET)]


def to_spark_batches(table: pa.Table, first: int, segment: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of a segment from the offset ``first`` on, as batches of about ``BATCH_BYTES`` of this schema.

    ``schema`` is an :func:`arrow_schema`. A column that the table lacks is null, narrower numbers are widened, and
    further columns are left out. Raises UnreadableSchema if a column has values that do not fit.
    """
    wanted = [name for name in topic_columns(schema) if name in table.column_names]
    _check_types(table.schema, schema, wanted)
    count = table.num_rows
    bytes_per_row = table.select(wanted).nbytes / max(count, 1) + len(segment) + 16
    rows = max(1, int(BATCH_BYTES / bytes_per_row))
    for start in range(0, count, rows):
        yield _spark_batch(table, start, min(rows, count - start), first, segment, schema)


def _spark_batch(
    table: pa.Table, start: int, count: int, first: int, segment: str, schema: pa.Schema
) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.name == SEGMENT:
            columns.append(pa.repeat(pa.scalar(segment, field.type), count))
        elif field.name == OFFSET:
            columns.append(_offsets(first + start, count))
        elif field.name in table.column_names:
            columns.append(_spark_column(table.column(field.name).slice(start, count), field.type))
        else:
            columns.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _offsets(first: int, count: int) -> pa.Array:
    return pa.array(np.arange(first, first + count, dtype=np.int64))


def _spark_column(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    chunks = column.chunks
    whole = chunks[0] if len(chunks) == 1 else column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # its bytes do not fit one array: a single batch cannot have them
        raise UnreadableSchema(f"a row group has more than 2 GiB in one column of {type_}")
    return whole if whole.type.equals(type_) and _has_names_of(whole.type, type_) else _cast(whole, type_)


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_list(column.type) and pa.types.is_list(type_):
        # A cast of lists keeps the names of their items in some versions of Arrow.
        items = _cast(column.values, type_.value_type)
        mask = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(_list_offsets(column), items, type=type_, mask=mask)
    if pa.types.is_uint64(column.type) and pa.types.is_decimal(type_):
        return column.cast(_UINT64).cast(type_)
    return pc.cast(column, type_)


def _list_offsets(column: pa.ListArray) -> pa.Array:
    """The offsets into ``values``, as an array whose own offset is 0. A mask needs that."""
    offsets = column.offsets
    if offsets.offset == 0:
        return offsets
    return pa.concat_arrays([offsets])


def _has_names_of(type_: pa.DataType, other: pa.DataType) -> bool:
    """Equal types may differ in the names of their lists' items."""
    if pa.types.is_list(type_):
        return type_.value_field.name == other.value_field.name and _has_names_of(type_.value_type, other.value_type)
    return True


def _check_types(found: pa.Schema, wanted: pa.Schema, names: Sequence[str]) -> None:
    difference = [
        f"column {name!r} is {found.field(name).type}, and was planned as {wanted.field(name).type}"
        for name in names
        if not _can_become(found.field(name).type, wanted.field(name).type)
    ]
    if difference:
        raise UnreadableSchema(
            f"the topic's schema has changed since this query was planned: {'; '.join(difference)}. Start it again",
            difference=tuple(difference),
        )


def _can_become(type_: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark's column holds every value of the type."""
    if pa.types.is_list(type_) and pa.types.is_list(wanted):
        return _can_become(type_.value_type, wanted.value_type)
    if pa.types.is_struct(type_) and pa.types.is_struct(wanted):
        return [field.name for field in type_] == [field.name for field in wanted] and all(
            _can_become(type_.field(n).type, wanted.field(n).type) for n in range(type_.num_fields)
        )
    if pa.types.is_unsigned_integer(type_):
        if pa.types.is_decimal(wanted):
            return bool(wanted.scale == 0 and wanted.precision >= 20)
        return bool(pa.types.is_signed_integer(wanted) and wanted.bit_width > type_.bit_width)
    return bool(type_ == wanted or is_wider(type_, wanted))
