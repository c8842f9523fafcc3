"""Columns keep their values in Spark's types, and batches have exactly the schema that Spark compares them with."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from pyspark_smq import spark_types
from pyspark_smq.errors import InvalidOption, UnreadableSchema
from pyspark_smq.spark_types import (
    arrow_schema,
    check_schema,
    dataframe_columns,
    spark_schema,
    to_spark_batches,
    topic_columns,
)
from smq_core.model.entities import Column
from smq_storage.chunks.schemas import chunk_schema, message_schema

NOW = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)
VALUES: list[tuple[str, str, list[Any]]] = [
    ("bool", "boolean", [True, False]),
    ("int8", "tinyint", [-128, 127]),
    ("int16", "smallint", [-(1 << 15), (1 << 15) - 1]),
    ("int32", "int", [-(1 << 31), (1 << 31) - 1]),
    ("int64", "bigint", [-(1 << 63), (1 << 63) - 1]),
    ("uint8", "smallint", [0, 255]),
    ("uint16", "int", [0, 65535]),
    ("uint32", "bigint", [0, (1 << 32) - 1]),
    ("uint64", "decimal(20,0)", [Decimal(0), Decimal((1 << 64) - 1)]),
    ("float32", "float", [-0.5, float("inf")]),
    ("float64", "double", [0.1, 1e308]),
    ("string", "string", ["", "grüße\x00"]),
    ("binary", "binary", [b"", b"\xff\x00"]),
    ("date32", "date", [date(1, 1, 1), date(9999, 12, 31)]),
    ("timestamp[us, UTC]", "timestamp", [NOW, datetime(1, 1, 1, tzinfo=UTC)]),
    ("timestamp[us]", "timestamp_ntz", [NOW.replace(tzinfo=None), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    ("decimal128(38, 10)", "decimal(38,10)", [Decimal("-1234567890.0123456789"), Decimal(0)]),
    ("list<int16>", "array<smallint>", [[1, None], []]),
    ("date", "date", [date(1, 1, 1), date(9999, 12, 31)]),
    ("dictionary<string>", "string", ["", "a"]),
    (
        "struct<a: uint8, b: list<string>>",
        "struct<a:smallint,b:array<string>>",
        [{"a": 255, "b": ["x", None]}, {"a": None, "b": None}],
    ),
    ("list<list<uint64>>", "array<array<decimal(20,0)>>", [[[Decimal((1 << 64) - 1)], None], [[]]]),
]


def typed_table(*columns: Column, **values: list[Any]) -> pa.Table:
    schema = chunk_schema(columns)
    count = len(next(iter(values.values())))
    own: dict[str, list[Any]] = {"partition": [0] * count, "timestamp": [NOW] * count, "appended": [NOW] * count}
    return pa.table(
        [pa.array((own | {"headers": [None] * count} | values)[f.name], f.type) for f in schema], schema=schema
    )


@pytest.mark.parametrize(("name", "spark_name", "values"), VALUES, ids=[name for name, _, _ in VALUES])
def test_every_type_keeps_its_values(name: str, spark_name: str, values: list[Any]) -> None:
    column = Column("c", name, nullable=True)
    whole = [int(v) if isinstance(v, Decimal) and name == "uint64" else v for v in values]
    table = typed_table(column, c=[None, *whole, None])
    struct = dataframe_columns(table.schema)
    assert struct["c"].dataType.simpleString() == spark_name
    assert all(field.nullable for field in struct)
    # A slice has its own offsets in its buffers.
    for part, wanted in ((table, [None, *values, None]), (table.slice(1, 2), values)):
        (batch,) = to_spark_batches(part, 5, "s", arrow_schema(struct))
        assert batch.schema.equals(arrow_schema(struct), check_metadata=True)
        batch.validate(full=True)
        assert batch.column("c").to_pylist() == wanted
        assert batch.column("c").type == arrow_schema(struct).field("c").type


def test_headers_keep_their_nulls() -> None:
    headers = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}, None], None, []]
    table = typed_table(Column("c", "int8", True), c=[1, 2, 3], headers=headers)
    (batch,) = to_spark_batches(table, 0, "s", arrow_schema(dataframe_columns(table.schema)))
    assert batch.column("headers").to_pylist() == headers
    assert "element" in str(batch.schema.field("headers").type)


def test_a_raw_topic_is_like_kafkas_source() -> None:
    assert dataframe_columns(chunk_schema()).fieldNames() == [
        *("partition", "timestamp", "appended", "key", "value", "headers"),
        *("_segment", "_offset"),
    ]


def test_offsets_and_segment_are_added_and_batches_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_types, "BATCH_BYTES", 20_000)
    table = typed_table(Column("c", "int64", True), c=list(range(1000)))
    schema = arrow_schema(spark_schema(table.schema, ("_offset", "c", "_segment")))
    batches = list(to_spark_batches(table, 7, "flights-0-64-0", schema))
    assert len(batches) > 1
    assert all(batch.schema == schema for batch in batches)
    read = pa.Table.from_batches(batches)
    assert read.column("_offset").to_pylist() == list(range(7, 1007))
    assert read.column("c").to_pylist() == list(range(1000))
    assert set(read.column("_segment").to_pylist()) == {"flights-0-64-0"}


def test_only_offsets_can_be_wanted() -> None:
    schema = arrow_schema(spark_schema(chunk_schema(), ("_offset",)))
    assert topic_columns(schema) == []
    table = typed_table(Column("c", "int64", True), c=[1, 2, 3])
    (batch,) = to_spark_batches(table, 4, "s", schema)
    assert batch.column("_offset").to_pylist() == [4, 5, 6]


def test_rows_of_an_older_schema_have_the_columns_of_the_newest() -> None:
    old = typed_table(Column("a", "int8"), Column("gone", "string", True), a=[1, -1], gone=["x", "y"])
    newest = chunk_schema([Column("a", "int64"), Column("new", "float64", True)])
    (batch,) = to_spark_batches(old, 0, "s", arrow_schema(dataframe_columns(newest)))
    assert batch.column("a").to_pylist() == [1, -1]
    assert batch.column("new").to_pylist() == [None, None]
    assert "gone" not in batch.schema.names


def test_wider_rows_than_were_planned_are_refused_with_the_difference() -> None:
    newer = typed_table(Column("a", "int64"), a=[1])
    planned = arrow_schema(dataframe_columns(chunk_schema([Column("a", "int32")])))
    with pytest.raises(UnreadableSchema, match="column 'a' is int64, and was planned as int32") as caught:
        list(to_spark_batches(newer, 0, "s", planned))
    assert len(caught.value.difference) == 1


def test_an_unknown_column_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidOption, match="no column 'vlaue'; did you mean 'value'"):
        spark_schema(chunk_schema(), ("vlaue",))


def test_a_topic_with_a_column_of_sparks_name_cannot_be_read() -> None:
    with pytest.raises(UnreadableSchema, match="'_Offset'"):
        dataframe_columns(chunk_schema([Column("_Offset", "int64")]))


def test_a_given_schema_is_compared_column_by_column() -> None:
    topic = chunk_schema([Column("a", "int32"), Column("b", "string")])
    check_schema(spark_schema(topic, ("b", "_offset")), topic)
    with pytest.raises(UnreadableSchema) as caught:
        check_schema(StructType().add("a", LongType()).add("c", StringType()), topic)
    assert caught.value.difference == ("column 'a' is int, not bigint", "the topic has no column 'c'")


REFUSED = (
    *("time", "time32[s]", "time32[ms]", "time64[us]", "time64[ns]", "map<string, int8>", "decimal256(50, 2)"),
    *("timestamp[ns]", "timestamp[s, UTC]", "timestamp[us, Europe/Berlin]", "list<map<string, int8>>"),
)


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_that_spark_does_not_have_is_refused_with_its_column(name: str) -> None:
    with pytest.raises(UnreadableSchema, match=r"^column 'c': Spark has no type for .*: Spark cannot read this topic"):
        dataframe_columns(chunk_schema([Column("a", "int8"), Column("c", name)]))


def test_every_type_that_a_topic_can_have_is_tried() -> None:
    from smq_storage.chunks.column_types import TYPE_NAMES

    tried = {name.partition("(")[0].partition("<")[0] for name in [*REFUSED, *(name for name, _, _ in VALUES)]}
    tried |= {"timestamp[s|ms|us|ns]", "timestamp[unit, zone]"}
    assert {name.partition("(")[0].partition("<")[0] for name in TYPE_NAMES} <= tried
    assert message_schema([Column("c", name) for name, _, _ in VALUES][:1])
