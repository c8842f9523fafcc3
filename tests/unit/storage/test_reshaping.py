"""Rows of an older schema version get the columns of a newer one, and no value changes."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from smq_core.model.entities import Column
from smq_storage.chunks.column_types import arrow_type
from smq_storage.chunks.reshaping import Reshaping, is_wider, reshape
from smq_storage.chunks.schemas import TIMESTAMP, message_schema

OLD = (Column("id", "int32"), Column("delay", "float32"), Column("note", "string", nullable=True))
NEW = (Column("id", "int64"), Column("delay", "float64", nullable=True), Column("gate", "uint8", nullable=True))


def batch(notes: list[str | None]) -> pa.RecordBatch:
    rows = len(notes)
    columns = [
        pa.array(range(rows), pa.int32()),
        pa.array([7] * rows).cast(TIMESTAMP),
        pa.array([-(1 << 31), *range(1, rows)], pa.int32()),
        pa.array([math.inf, *([0.1] * (rows - 1))], pa.float32()),
        pa.array(notes, pa.string()),
        pa.nulls(rows, message_schema().field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=message_schema(OLD))


def narrow(rows: pa.RecordBatch, columns: tuple[Column, ...]) -> pa.RecordBatch | None:
    return Reshaping(rows.schema, message_schema(columns)).narrow(rows)


def dropped_values(rows: pa.RecordBatch, columns: tuple[Column, ...]) -> dict[str, int]:
    return Reshaping(rows.schema, message_schema(columns)).dropped_values(rows)


@pytest.mark.parametrize("as_table", [False, True])
def test_columns_are_added_widened_made_nullable_and_dropped(as_table: bool) -> None:
    rows = batch(["a", "b"])
    given = pa.Table.from_batches([rows.slice(0, 1), rows.slice(1)]) if as_table else rows

    made = reshape(given, message_schema(NEW))

    assert type(made) is type(given)
    assert made.schema.equals(message_schema(NEW))
    assert made.column("id").to_pylist() == [-(1 << 31), 1]
    assert made.column("delay").to_pylist() == [math.inf, rows.column("delay")[1].as_py()]
    assert made.column("gate").to_pylist() == [None, None]
    assert made.column("partition").to_pylist() == [0, 1]
    if not as_table:
        made.validate(full=True)


def test_rows_of_the_same_schema_are_not_copied() -> None:
    rows = batch(["a"])
    assert reshape(rows, message_schema(OLD)) is rows


def with_column(rows: pa.RecordBatch, name: str, values: list[object]) -> pa.RecordBatch:
    field = rows.schema.field(name)
    return rows.set_column(rows.schema.get_field_index(name), field, pa.array(values, field.type))


def test_rows_that_use_nothing_new_go_back_to_the_older_columns() -> None:
    rows = batch([None, None])
    rows = with_column(rows, "delay", [math.nan, 0.5])
    back = narrow(reshape(rows, message_schema(NEW)), OLD)
    assert back is not None
    assert str(back.to_pylist()) == str(rows.to_pylist()), "a NaN stays one"
    assert back.schema.equals(rows.schema)


@pytest.mark.parametrize(
    ("column", "value"),
    [("id", 1 << 31), ("delay", 0.1), ("delay", None), ("gate", 3)],
)
def test_rows_that_use_something_new_do_not_go_back(column: str, value: object) -> None:
    newer = with_column(reshape(batch([None]), message_schema(NEW)), column, [value])
    assert narrow(newer, OLD) is None


def test_a_dropped_column_that_could_not_be_null_cannot_be_filled() -> None:
    older = (Column("id", "int32"), Column("must", "int32"))
    newer = reshape(batch([None]), message_schema((OLD[0], OLD[1])))
    assert narrow(newer, older) is None


def test_a_dropped_column_has_values_or_not() -> None:
    assert dropped_values(batch(["a", None, "c"]), NEW) == {"note": 2}
    assert dropped_values(batch([None, None]), NEW) == {}
    assert dropped_values(batch(["a"]), OLD) == {}


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ((Column("id", "int16"), *OLD[1:]), "id: int32 cannot become int16"),
        ((Column("id", "uint64"), *OLD[1:]), "id: int32 cannot become uint64"),
        ((*OLD, Column("must", "int32")), "must may not be null"),
    ],
)
def test_what_is_no_newer_version_is_refused(columns: tuple[Column, ...], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        reshape(batch(["a"]), message_schema(columns))


@pytest.mark.parametrize(
    ("narrow", "wide", "wider"),
    [
        ("int8", "int16", True),
        ("uint8", "uint64", True),
        ("float32", "float64", True),
        ("int64", "int64", False),
        ("uint8", "int16", False),
        ("int8", "uint16", False),
        ("int32", "float64", False),
        ("float64", "float32", False),
        ("date32", "timestamp[us]", False),
    ],
)
def test_which_types_are_wider(narrow: str, wide: str, wider: bool) -> None:
    assert is_wider(arrow_type(narrow), arrow_type(wide)) is wider
