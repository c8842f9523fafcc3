"""Matches rows from files with a topic: by column name, with casts that change no value."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from smq.producing.encoding.batch_encoder import message_times
from smq_core.errors import SchemaMismatch
from smq_core.model.entities import Column
from smq_storage.chunks.column_types import arrow_type, plain_type
from smq_storage.chunks.schemas import HEADERS, RESERVED, TIMESTAMP
from smq_storage.conversion.exact_cast import InexactValue, exact_cast
from smq_storage.conversion.row_values import no_such_columns
from smq_storage.json_lines.fields import POSITION_FIELDS
from smq_storage.json_lines.rows import json_line, python_rows

# Columns of the message itself, beside those of the topic.
MESSAGE_COLUMNS = {"timestamp": TIMESTAMP, "headers": HEADERS}


def match_columns(table: pa.Table, columns: Sequence[Column], first_row: int = 0) -> pa.Table:
    """Returns the table's columns that the topic has, in the topic's order and types.

    A missing nullable column becomes nulls. Columns that the topic does not have are left out, except the timestamp
    and headers of messages. ``first_row`` is how many rows of the file come before the table.
    Errors count rows from 1.

    Raises SchemaMismatch with one line for each column that does not fit.
    """
    _require_unique(table)
    problems: list[str] = []
    made: list[pa.ChunkedArray] = []
    fields = [pa.field(c.name, plain_type(arrow_type(c.type)), nullable=c.nullable) for c in columns]
    for field, column in zip(fields, columns, strict=True):
        if field.name not in table.column_names and not field.nullable:
            problems.append(f"  {column.name} ({column.type}): it is missing, and it may not be null")
            continue
        try:
            made.append(_match_column(table, field))
        except InexactValue as problem:
            problems.append(f"  {column.name} ({column.type}): {_located(problem, first_row)}")
    for name, type_ in MESSAGE_COLUMNS.items():
        if name in table.column_names:
            try:
                made.append(_message_column(table, name))
                fields.append(pa.field(name, type_))
            except InexactValue as problem:
                problems.append(f"  {name}: {_located(problem, first_row)}")
    if problems:
        raise SchemaMismatch(
            "these columns do not fit the topic:\n" + "\n".join(problems), expected=", ".join(c.name for c in columns)
        )
    return pa.table(made, schema=pa.schema(fields))


def require_known_columns(names: Sequence[str], columns: Sequence[Column], key: str | None = None) -> None:
    """Whether a table has only columns of the topic, because one that is misspelt would be stored as null.

    Raises SchemaMismatch with the others.
    """
    if not columns and "value" not in names:
        return  # each row becomes a JSON object
    known = [c.name for c in columns] if columns else [key or "key", "value"]
    unknown = [name for name in names if name not in (*known, *RESERVED, *POSITION_FIELDS)]
    if unknown:
        raise SchemaMismatch(
            f"{no_such_columns(unknown, (), known)}. Its columns are {', '.join(known)}. To leave others out, add "
            "--ignore-unknown",
            expected=", ".join(known),
        )


def to_messages(table: pa.Table, key: str | None, first_row: int = 0) -> pa.Table:
    """Returns rows for a topic without a schema: ``key`` and ``value``, both binary.

    A ``value`` column is used as it is, with the ``timestamp`` and ``headers`` of messages; without one, each row
    becomes a JSON object, as `smq consume` would write it. ``key`` names the column with the message's key; the
    default is a column ``key`` if there is one. ``first_row`` is as in :func:`match_columns`.

    Raises SchemaMismatch, InvalidRequest.
    """
    _require_unique(table)
    key_name = key or ("key" if "key" in table.column_names else None)
    if key_name is not None and key_name not in table.column_names:
        raise SchemaMismatch(
            f"there is no column {key_name!r} to take the key from; there are {', '.join(table.column_names)}"
        )
    keys = _binary(table.column(key_name), key_name) if key_name else pa.nulls(table.num_rows, pa.binary())
    if "value" not in table.column_names:
        values = pa.array([json_line(row) for row in python_rows(table)], pa.binary())
        return pa.table({"key": keys, "value": values})
    made = {"key": keys, "value": _binary(table.column("value"), "value")}
    for name in MESSAGE_COLUMNS:
        if name in table.column_names and name != key_name:
            try:
                made[name] = _message_column(table, name)
            except InexactValue as problem:
                raise SchemaMismatch(f"column {name}: {_located(problem, first_row)}") from None
    return pa.table(made)


def _require_unique(table: pa.Table) -> None:
    names = table.column_names
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SchemaMismatch(f"the column {', '.join(map(repr, twice))} occurs more than once")


def _located(problem: InexactValue, first_row: int) -> str:
    return f"row {first_row + problem.row + 1:,}: {problem.reason}"


def _message_column(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = table.column(name)
    return message_times(column) if name == "timestamp" else exact_cast(column, MESSAGE_COLUMNS[name])


def _match_column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    converted = exact_cast(table.column(field.name), field.type)
    if converted.null_count and not field.nullable:
        row = pc.index(converted.is_null(), True).as_py()
        raise InexactValue(f"it may not be null, and {converted.null_count:,} rows are", row)
    return converted


def _binary(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Casts to bytes; values that are neither text nor bytes become text first."""
    try:
        if not (pa.types.is_large_binary(column.type) or pa.types.is_binary(column.type)):
            column = pc.cast(column, pa.string())
        return pc.cast(column, pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch(f"column {name!r} cannot become bytes: {str(error).splitlines()[0]}") from None
