"""Rows from files made to fit a topic: columns matched by name and cast without loss."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from smq_core.errors import SchemaMismatch
from smq_core.model import Column
from smq_storage.schemas import HEADERS, RESERVED, TIMESTAMP, arrow_type

CARRIED = {"timestamp": TIMESTAMP, "headers": HEADERS}
"""What belongs to the message itself, beside the topic's columns."""


def fit(table: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """The table's columns that the topic has, in the topic's order and types.

    A nullable column that is missing becomes nulls; columns that the topic does not have are left out, except the
    time and headers of messages that were consumed from a topic. Raises SchemaMismatch with one line for each column
    that does not fit.
    """
    problems: list[str] = []
    made: list[pa.ChunkedArray] = []
    for column in columns:
        try:
            made.append(_fit_column(table, column))
        except _Unfit as problem:
            problems.append(f"  {column.name} ({column.type}): {problem}")
    if problems:
        raise SchemaMismatch(
            "these columns do not fit the topic:\n" + "\n".join(problems), expected=[c.name for c in columns]
        )
    fields = [pa.field(c.name, arrow_type(c.type), nullable=c.nullable) for c in columns]
    for name, type_ in CARRIED.items():
        if _has(table, name, type_):
            fields.append(pa.field(name, type_))
            made.append(table.column(name))
    return pa.table(made, schema=pa.schema(fields))


def unused(names: Sequence[str], columns: Sequence[Column]) -> list[str]:
    """The names that :func:`fit` leaves out."""
    return [name for name in names if name not in {c.name for c in columns} and name not in RESERVED]


def messages(table: pa.Table, key: str | None) -> pa.Table:
    """Rows for a topic without a schema: ``key`` and ``value``, both binary.

    A table with a ``value`` column is taken as it is; of any other table each row becomes a JSON object. ``key``
    names the column with the message's key; without it a column ``key`` is used, if there is one.

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
        made |= {name: table.column(name) for name, type_ in CARRIED.items() if _has(table, name, type_)}
    return pa.table(made)


def _has(table: pa.Table, name: str, type_: pa.DataType) -> bool:
    return name in table.column_names and bool(table.schema.field(name).type.equals(type_))


class _Unfit(Exception):
    pass


def _fit_column(table: pa.Table, column: Column) -> pa.ChunkedArray:
    target = arrow_type(column.type)
    if column.name not in table.column_names:
        if not column.nullable:
            raise _Unfit("it is missing, and it may not be null")
        return pa.chunked_array([pa.nulls(table.num_rows, target)])
    found = table.column(column.name)
    if pa.types.is_dictionary(found.type):
        found = pc.cast(found, found.type.value_type)
    try:
        fitted = pc.cast(found, target, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _Unfit(f"it is {found.type} here: {_first_line(error)}") from None
    if fitted.null_count and not column.nullable:
        raise _Unfit(f"it has {fitted.null_count:,} nulls, and it may not be null")
    return fitted


def _binary(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Bytes of text or bytes; of anything else the bytes of its text."""
    try:
        if not (pa.types.is_large_binary(column.type) or pa.types.is_binary(column.type)):
            column = pc.cast(column, pa.string())
        return pc.cast(column, pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch(f"column {name!r} cannot become bytes: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
