"""Matches rows from files with a topic: by column name, with casts that lose nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from smq_core.errors import SchemaMismatch
from smq_core.model.entities import Column
from smq_storage.chunks.schemas import HEADERS, RESERVED, TIMESTAMP, arrow_type

MESSAGE_COLUMNS = {"timestamp": TIMESTAMP, "headers": HEADERS}
"""Columns of the message itself, beside those of the topic."""


def match_columns(table: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Returns the table's columns that the topic has, in the topic's order and types.

    A missing nullable column becomes nulls. Columns that the topic does not have are left out, except the timestamp
    and headers of messages that were consumed from a topic. Raises SchemaMismatch with one line for each column
    that does not fit.
    """
    problems: list[str] = []
    made: list[pa.ChunkedArray] = []
    for column in columns:
        try:
            made.append(_match_column(table, column))
        except _ColumnMismatch as problem:
            problems.append(f"  {column.name} ({column.type}): {problem}")
    if problems:
        raise SchemaMismatch(
            "these columns do not fit the topic:\n" + "\n".join(problems), expected=", ".join(c.name for c in columns)
        )
    fields = [pa.field(c.name, arrow_type(c.type), nullable=c.nullable) for c in columns]
    for name, type_ in MESSAGE_COLUMNS.items():
        if _has(table, name, type_):
            fields.append(pa.field(name, type_))
            made.append(table.column(name))
    return pa.table(made, schema=pa.schema(fields))


def unmatched_columns(names: Sequence[str], columns: Sequence[Column]) -> list[str]:
    """The names that :func:`match_columns` leaves out."""
    return [name for name in names if name not in {c.name for c in columns} and name not in RESERVED]


def to_messages(table: pa.Table, key: str | None) -> pa.Table:
    """Returns rows for a topic without a schema: ``key`` and ``value``, both binary.

    A ``value`` column is used as it is; without one, each row becomes a JSON object. ``key`` names the column with
    the message's key; the default is a column ``key`` if there is one.

    Raises SchemaMismatch.
    """
    key_name = key or ("key" if "key" in table.column_names else None)
    if key_name is not None and key_name not in table.column_names:
        raise SchemaMismatch(
            f"there is no column {key_name!r} to take the key from; there are {', '.join(table.column_names)}"
        )
    if "value" in table.column_names:
        values = _binary(table.column("value"), "value")
    else:
        rows = table.to_pylist()
        values = pa.chunked_array([pa.array([json.dumps(row, default=str).encode() for row in rows], pa.binary())])
    keys = _binary(table.column(key_name), key_name) if key_name else pa.nulls(table.num_rows, pa.binary())
    made = {"key": keys, "value": values}
    if "value" in table.column_names:
        made |= {name: table.column(name) for name, type_ in MESSAGE_COLUMNS.items() if _has(table, name, type_)}
    return pa.table(made)


def _has(table: pa.Table, name: str, type_: pa.DataType) -> bool:
    return name in table.column_names and bool(table.schema.field(name).type.equals(type_))


class _ColumnMismatch(Exception):
    pass


def _match_column(table: pa.Table, column: Column) -> pa.ChunkedArray:
    target = arrow_type(column.type)
    if column.name not in table.column_names:
        if not column.nullable:
            raise _ColumnMismatch("it is missing, and it may not be null")
        return pa.chunked_array([pa.nulls(table.num_rows, target)])
    found = table.column(column.name)
    if pa.types.is_dictionary(found.type):
        found = pc.cast(found, found.type.value_type)
    try:
        converted = pc.cast(found, target, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _ColumnMismatch(f"it is {found.type} here: {_first_line(error)}") from None
    if converted.null_count and not column.nullable:
        raise _ColumnMismatch(f"it has {converted.null_count:,} nulls, and it may not be null")
    return converted


def _binary(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Casts to bytes; values that are neither text nor bytes become text first."""
    try:
        if not (pa.types.is_large_binary(column.type) or pa.types.is_binary(column.type)):
            column = pc.cast(column, pa.string())
        return pc.cast(column, pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch(f"column {name!r} cannot become bytes: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
