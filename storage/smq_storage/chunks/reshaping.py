"""Gives rows of an older schema version the columns of a newer one.

A newer version differs in four ways only (:mod:`smq_core.model.schema_evolution`): new columns that may be null, wider
numbers, columns that may be null now, and dropped columns. So no value changes, except that a dropped column's values
are left out, which a producer must not do: it calls :func:`dropped_values` first.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

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
