"""Rows of single messages: checked when they are sent, made to columns when their batch is encoded.

A batch is encoded after ``send`` has returned, so nothing may fail then.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches

import pyarrow as pa

from smq_storage.conversion.exact_cast import InexactValue, kind_of
from smq_storage.conversion.row_checks import Row, compile_row_conversion
from smq_storage.conversion.value_conversion import is_micros, width

_EPOCH = {"time": datetime(1970, 1, 1), "zoned time": datetime(1970, 1, 1, tzinfo=UTC)}
_MICROS = pa.duration("us")
# How the module ``struct`` names the types of numbers.
_FORMATS = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.uint8(): "B",
    pa.uint16(): "H",
    pa.uint32(): "I",
    pa.uint64(): "Q",
    pa.float32(): "f",
    pa.float64(): "d",
}


class RowConverter:
    """Converts mappings to rows with the columns of a schema, in their order. ``dropped``: names of former columns."""

    def __init__(self, schema: pa.Schema, dropped: Iterable[str] = ()) -> None:
        self._names = schema.names
        self._known = frozenset(schema.names)
        self._dropped = frozenset(dropped)
        fixed_bytes = sum(width(field.type) for field in schema)
        self.convert = compile_row_conversion(list(schema), self._values, fixed_bytes)
        """Returns the row of a message and its size in bytes. Raises InexactValue with the column."""

    def _values(self, value: object) -> Row:
        if not isinstance(value, Mapping):
            raise InexactValue(f"a value must be a mapping of columns, not {type(value).__name__}")
        if not self._known.issuperset(value):
            raise InexactValue(
                no_such_columns([str(n) for n in value if n not in self._known], self._dropped, self._names)
            )
        return tuple(value.get(name) for name in self._names)


def column_maker(checked: pa.DataType, stored: pa.DataType) -> Callable[[Sequence[object]], pa.Array]:
    """What makes a stored column of values of a checked type that a :class:`RowConverter` has returned."""
    epoch = _EPOCH.get(kind_of(checked))
    if epoch is not None and is_micros(checked):
        int64 = pa.int64()

        def times(values: Sequence[object]) -> pa.Array:
            # Arrow asks each datetime for its zone. Python subtracts two of the same zone without that.
            since = [None if at is None else at - epoch for at in values]  # type: ignore[operator]
            return pa.array(since, _MICROS).view(int64).view(checked)

        return times
    if checked == stored and checked in _FORMATS:
        return _number_maker(checked)
    if checked == stored:
        return lambda values: pa.array(values, checked)
    return lambda values: pa.array(values, checked).cast(stored)


def _number_maker(type_: pa.DataType) -> Callable[[Sequence[object]], pa.Array]:
    letter = _FORMATS[type_]

    def numbers(values: Sequence[object]) -> pa.Array:
        try:  # three times as fast as Arrow, which looks for the type of each value
            data = struct.pack(f"{len(values)}{letter}", *values)
        except struct.error:  # at the first null
            return pa.array(values, type_)
        return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(data)])

    return numbers


def no_such_columns(names: Iterable[str], dropped: Iterable[str], known: Sequence[str]) -> str:
    """Why these columns are refused, with the names that may be meant."""
    return "the topic has no column " + ", ".join(_unknown_column(name, dropped, known) for name in names)


def _unknown_column(name: str, dropped: Iterable[str], known: Sequence[str]) -> str:
    if name in dropped:
        return f"{name} (it was dropped)"
    close = get_close_matches(name, known, n=1)
    return f"{name} (did you mean {close[0]}?)" if close else name
