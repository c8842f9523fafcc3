"""Gives rows of one schema version the columns of another one.

A newer version differs in four ways only (:mod:`smq_core.model.schema_evolution`): new columns that may be null, wider
numbers, columns that may be null now, and dropped columns. So no value changes, except that a dropped column's values
are left out, which a producer must not do: it calls ``dropped_values`` first. Rows that use nothing of what is new may
also go back (``narrow``).

While the segments of a topic get a new version one after another, a producer does this for every small batch. Arrow
makes an object of each field and name whenever it is asked for them, so what is to be done is found once.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


class _Column(NamedTuple):
    """One column of the result. ``source`` is its number in the given rows; None if they do not have it."""

    name: str
    type: pa.DataType
    nullable: bool
    source: int | None
    source_type: pa.DataType


class Reshaping:
    """From rows of the schema ``old`` to rows of ``new``, one of which is a newer version of the other. Immutable."""

    def __init__(self, old: pa.Schema, new: pa.Schema) -> None:
        self._schema = new
        self._is_same = old.equals(new)
        numbers = {name: number for number, name in enumerate(old.names)}
        types, names = old.types, set(new.names)
        self._columns = tuple(
            _Column(f.name, f.type, f.nullable, at, f.type if at is None else types[at])
            for f in new
            for at in [numbers.get(f.name)]
        )
        self._dropped = tuple((name, number) for name, number in numbers.items() if name not in names)

    def dropped_values(self, rows: pa.Table | pa.RecordBatch) -> dict[str, int]:
        """The columns that the new schema does not have although rows have values in them, and how many values."""
        found = {name: rows.num_rows - rows.column(number).null_count for name, number in self._dropped}
        return {name: values for name, values in found.items() if values}

    def widen(self, rows: Rows) -> Rows:
        """The rows with the columns of the newer schema, in its order. Copies only what is widened.

        Raises ValueError if the schema is not a newer version of what the rows have.
        """
        if self._is_same:
            return rows
        return type(rows).from_arrays([_widened(column, rows) for column in self._columns], schema=self._schema)

    def narrow(self, rows: Rows) -> Rows | None:
        """The rows with the columns of the older schema, or None if a value, or a null, has no place there.

        A reshaping back makes the same rows of them again. A column that only the older schema has is null.
        """
        if self.dropped_values(rows):
            return None
        columns = []
        for column in self._columns:
            values = _narrowed(column, rows)
            if values is None or (values.null_count and not column.nullable):
                return None
            columns.append(values)
        return type(rows).from_arrays(columns, schema=self._schema)


def reshape(rows: Rows, schema: pa.Schema) -> Rows:
    """:meth:`Reshaping.widen` for rows that are alone."""
    return Reshaping(rows.schema, schema).widen(rows)


def _widened(column: _Column, rows: pa.Table | pa.RecordBatch) -> pa.Array | pa.ChunkedArray:
    if column.source is None:
        if not column.nullable:
            raise ValueError(f"column {column.name} may not be null, but the rows have no such column")
        return pa.nulls(rows.num_rows, column.type)
    values = rows.column(column.source)
    if column.source_type == column.type:
        return values
    if not is_wider(column.source_type, column.type):
        raise ValueError(f"column {column.name}: {column.source_type} cannot become {column.type}")
    return values.cast(column.type)


def _narrowed(column: _Column, rows: pa.Table | pa.RecordBatch) -> pa.Array | pa.ChunkedArray | None:
    """None if a value does not fit."""
    if column.source is None:
        return pa.nulls(rows.num_rows, column.type)
    wide = rows.column(column.source)
    if column.source_type == column.type:
        return wide
    values = wide.cast(column.type, safe=False)
    if not _same_values(values.cast(column.source_type), wide):
        return None
    return values


def _same_values(column: pa.Array | pa.ChunkedArray, other: pa.Array | pa.ChunkedArray) -> bool:
    """Whether two columns of numbers, with nulls at the same places, are the same. A NaN is the same as another."""
    same = pc.equal(column, other)
    if pa.types.is_floating(other.type):
        same = pc.or_(same, pc.is_nan(other))
    return pc.all(same).as_py() is not False


def is_wider(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether a column of the first type may become one of the second, because it can hold every value."""
    if pa.types.is_signed_integer(narrow):
        return bool(pa.types.is_signed_integer(wide) and wide.bit_width > narrow.bit_width)
    if pa.types.is_unsigned_integer(narrow):
        return bool(pa.types.is_unsigned_integer(wide) and wide.bit_width > narrow.bit_width)
    return bool(narrow == pa.float32() and wide == pa.float64())
