"""Gives rows of one schema version the columns of another one.

A newer version differs in four ways only (:mod:`smq_core.model.schema_evolution`): new columns that may be null, wider
numbers, columns that may be null now, and dropped columns. So no value changes, except that a dropped column's values
are left out, which a producer must not do: it calls :func:`dropped_values` first. Rows that use nothing of what is new
may also go back (:func:`narrow`).
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def reshape(rows: Rows, schema: pa.Schema) -> Rows:
    """The rows with the columns of a newer schema, in its order. Copies only what is widened.

    Raises ValueError if the schema is not a newer version of what the rows have.
    """
    if rows.schema.equals(schema):
        return rows
    columns = []
    for field in schema:
        if field.name not in rows.schema.names:
            if not field.nullable:
                raise ValueError(f"column {field.name} may not be null, but the rows have no such column")
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        if column.type != field.type and not is_wider(column.type, field.type):
            raise ValueError(f"column {field.name}: {column.type} cannot become {field.type}")
        columns.append(column.cast(field.type))
    return type(rows).from_arrays(columns, schema=schema)


def narrow(rows: Rows, schema: pa.Schema) -> Rows | None:
    """The rows with the columns of an older schema, or None if a value, or a null, has no place there.

    ``reshape`` makes the same rows of them again. A column that only the older schema has is null.
    """
    if dropped_values(rows, schema):
        return None
    columns = []
    for field in schema:
        if field.name not in rows.schema.names:
            column = pa.nulls(rows.num_rows, field.type)
        else:
            wide = column = rows.column(field.name)
            if wide.type != field.type:
                column = wide.cast(field.type, safe=False)
                if not _same_values(column.cast(wide.type), wide):
                    return None
        if column.null_count and not field.nullable:
            return None
        columns.append(column)
    return type(rows).from_arrays(columns, schema=schema)


def _same_values(column: pa.Array | pa.ChunkedArray, other: pa.Array | pa.ChunkedArray) -> bool:
    """Whether two columns of numbers, with nulls at the same places, are the same. A NaN is the same as another."""
    same = pc.equal(column, other)
    if pa.types.is_floating(other.type):
        same = pc.or_(same, pc.is_nan(other))
    return pc.all(same).as_py() is not False


def dropped_values(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> dict[str, int]:
    """The columns that the schema does not have although rows have values in them, and how many values."""
    found = {}
    for number, field in enumerate(rows.schema):
        values = rows.num_rows - rows.column(number).null_count
        if values and field.name not in schema.names:
            found[field.name] = values
    return found


def is_wider(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether a column of the first type may become one of the second, because it can hold every value."""
    if pa.types.is_signed_integer(narrow):
        return bool(pa.types.is_signed_integer(wide) and wide.bit_width > narrow.bit_width)
    if pa.types.is_unsigned_integer(narrow):
        return bool(pa.types.is_unsigned_integer(wide) and wide.bit_width > narrow.bit_width)
    return bool(narrow == pa.float32() and wide == pa.float64())
