"""Casts of Arrow columns that change no value: what a reader gets equals what the program wrote, or the cast fails.

=========================  ============================================================================================
column                     takes
=========================  ============================================================================================
bool                       bool
integers                   integers, floats and decimals whose value is a whole number in range
floats                     floats and integers whose value the type represents exactly (a NaN stays a NaN)
decimal128, decimal256     decimals and integers that fit its precision and scale
string, binary             text and bytes respectively, never the other
date32                     dates
timestamp[unit]            times without a zone, of any unit, if they are whole units of the column, in range
timestamp[unit, zone]      times with a zone, whichever, under the same condition; they keep the instant
time32, time64             times of day under the same condition
list                       lists whose items fit
struct                     structs with no other fields, whose values fit; a field that is missing is null
map                        maps, and lists of structs with the fields key and value, whose keys and values fit
=========================  ============================================================================================

A null fits every column that may be null. Text is not a number, a bool is not an integer, and nothing is rounded.
A time or date fits if Python has it (:mod:`smq_storage.chunks.python_times`), because readers could not show others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from smq_storage.chunks.python_times import NOT_IN_PYTHON, all_in_python, has_times

Column = TypeVar("Column", pa.Array, pa.ChunkedArray)

SHOWN_CHARACTERS = 80

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_INTEGER_AS_DECIMAL = pa.decimal128(20, 0)  # has room for every uint64

_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_KINDS = (
    ("bool", pa.types.is_boolean),
    ("integer", pa.types.is_integer),
    ("float", pa.types.is_floating),
    ("decimal", pa.types.is_decimal),
    ("text", lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t)),
    ("bytes", lambda t: any(f(t) for f in _BYTES)),
    ("date", pa.types.is_date),
    ("time", lambda t: pa.types.is_timestamp(t) and t.tz is None),
    ("zoned time", pa.types.is_timestamp),
    ("list", lambda t: any(f(t) for f in _LISTS)),
    ("time of day", pa.types.is_time),
    ("struct", pa.types.is_struct),
    ("map", pa.types.is_map),
)
_TIMES = ("date", "time", "zoned time", "time of day")
# The kinds that a kind takes beside its own.
_ACCEPTED = {
    "integer": {"float", "decimal"},
    "float": {"integer"},
    "decimal": {"integer"},
    "list": {"map"},
    "map": {"list"},
}

_ADVICE = {
    ("text", "bytes"): "text is not bytes; encode it first",
    ("bytes", "text"): "bytes are not text; decode them first",
    ("time", "zoned time"): "it has no time zone; give it one first",
    ("zoned time", "time"): "it has a time zone; remove it first",
    ("time", "time of day"): "take its time() first",
    ("zoned time", "time of day"): "take its time() first",
    ("time", "date"): "a time is not a date",
    ("zoned time", "date"): "a time is not a date",
    ("bool", "integer"): "a bool is not a number",
    ("bool", "float"): "a bool is not a number",
    ("float", "float"): "the value would change; round it first, for example with numpy.float32",
    ("float", "decimal"): "a float is not a decimal",
    ("decimal", "float"): "a decimal is not a float",
    **{("text", number): "text is not a number" for number in ("integer", "float", "decimal")},
}


# Why a value with values inside does not fit.
_INSIDE = {
    ("list", "list"): "an item does not fit",
    ("map", "list"): "an item does not fit",
    ("map", "map"): "a key or a value does not fit",
    ("list", "map"): "its items must have the fields key and value, no key may be null, and each must fit",
    ("struct", "struct"): "a field does not fit, or it has one that the column does not have",
}


class InexactValue(Exception):
    """A value does not fit a column's type.

    ``reason`` says what does not fit and why, ``row`` is the value's index, and ``column`` its column, where known.
    """

    def __init__(self, reason: str, row: int = 0, column: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.row = row
        self.column = column

    def located(self, row: int | None = None) -> str:
        """The reason, after the column and, if it is given, the row."""
        found = [f"column {self.column}"] if self.column is not None else []
        found += [f"row {row}"] if row is not None else []
        return f"{', '.join(found)}: {self.reason}" if found else self.reason


def exact_cast(column: Column, target: pa.DataType) -> Column:
    """Casts a column by the rules above. Raises InexactValue for the first row that does not fit."""
    if column.type == target and not has_times(target):
        return column
    try:
        return _cast_column(column, target)
    except _CastFailed:
        row = _first_that_fails(column, target)
    value = column.slice(row, 1)
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    shown, source = show_scalar(value[0]), decoded_type(value.type)
    try:
        _cast_column(value, target)
    except _NotInPython:
        raise InexactValue(f"{shown} ({source}) does not fit {target}: {NOT_IN_PYTHON}", row) from None
    except _CastFailed:
        pass
    raise InexactValue(does_not_fit(shown, source, target), row)


def does_not_fit(shown: str, source: pa.DataType, target: pa.DataType) -> str:
    """Why a value, as it is shown to a person, does not fit a column."""
    return f"{shown} ({source}) does not fit {target}: {_advice(source, target)}"


def show(value: object) -> str:
    """The value as errors quote it."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def show_scalar(value: pa.Scalar) -> str:
    """The value as errors quote it; times as text, because Python has no nanoseconds."""
    kind = value.type
    if pa.types.is_time(kind) and not value.value < 86_400 * _PER_SECOND[kind.unit]:
        return f"{value.value} {kind.unit}"  # Python would show the time of the next day
    if pa.types.is_temporal(kind):
        with suppress(OverflowError, ValueError):
            return str(value)
        if pa.types.is_timestamp(kind):
            return str(np.datetime64(value.value, kind.unit))
    texts: tuple[Callable[[], str], ...] = (
        lambda: show(value.as_py()),
        lambda: show(str(value)),
        lambda: show(str(value.value)),
    )
    for text in texts:
        with suppress(OverflowError, ValueError, AttributeError):
            return text()
    return f"a {kind}"  # of text that is not valid Unicode


def decoded_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary, or of another encoding."""
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return decoded_type(type_.value_type)
    return decoded_type(type_.storage_type) if isinstance(type_, pa.BaseExtensionType) else type_


def kind_of(type_: pa.DataType) -> str:
    """The kind of values of the type, such as ``integer``."""
    return next((name for name, matches in _KINDS if matches(type_)), str(type_))


def may_fit(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether any value of one type fits the other one, by the kinds of the types."""
    kind, wanted = kind_of(decoded_type(source)), kind_of(target)
    return kind == wanted or kind in _ACCEPTED.get(wanted, ())


class _CastFailed(Exception):
    pass


class _NotInPython(_CastFailed):
    """The value is a time that Python does not have, or has one inside."""


def type_does_not_fit(source: pa.DataType, target: pa.DataType) -> str:
    """Why no value of a type fits a column."""
    return f"{source} does not fit {target}: {_advice(decoded_type(source), target)}"


def _advice(source: pa.DataType, target: pa.DataType) -> str:
    pair = kind_of(source), kind_of(target)
    if pair in _INSIDE:
        return _INSIDE[pair]
    if pair[0] != pair[1] and pair[0] not in _ACCEPTED.get(pair[1], ()):
        return _ADVICE.get(pair, f"{pair[0]} is not {pair[1]}")
    return _ADVICE.get(pair, "the value would change")


def _cast_column(column: Column, target: pa.DataType) -> Column:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_cast(chunk, target) for chunk in column.chunks], target)
    return _cast(column, target)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Raises _CastFailed."""
    source = array.type
    if source == target and not has_times(target):
        return array
    if isinstance(source, pa.BaseExtensionType):
        return _cast(array.storage, target)
    if pa.types.is_dictionary(source):
        return _cast(decoded(array), target)
    if pa.types.is_run_end_encoded(source):
        return _cast(pc.run_end_decode(array), target)
    if array.null_count == len(array):
        return pa.nulls(len(array), target)
    kind, wanted = kind_of(source), kind_of(target)
    if kind != wanted and kind not in _ACCEPTED.get(wanted, ()):
        raise _CastFailed
    try:
        if wanted == "list":
            return _cast_list(array, target)
        if wanted == "map":
            return _cast_map(array, target)
        if wanted == "struct":
            return _cast_struct(array, target)
        if wanted == "float":
            return _integer_to_float(array, target) if kind == "integer" else _float_to_float(array, target)
        if kind == "integer" and wanted == "decimal":
            array = array.cast(_INTEGER_AS_DECIMAL)
        elif pa.types.is_float16(source):
            array = array.cast(pa.float32())
        found = array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise _CastFailed from None
    if wanted in _TIMES and not all_in_python(found):
        raise _NotInPython
    return found


def _integer_to_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        # Arrow refuses every integer from some size on, also those that a float represents.
        found = array.cast(target, safe=False)
    unsigned = pa.types.is_unsigned_integer(array.type)
    wide = pa.uint64() if unsigned else pa.int64()
    # Below 2 ** 63 (unsigned: 2 ** 64), because what is at the limit was rounded up to it.
    fits = pc.less(found, pa.scalar(2.0**64 if unsigned else 2.0**63, target))
    back = pc.if_else(fits, found, pa.scalar(0.0, target)).cast(wide)
    _require(pc.and_(fits, pc.equal(back, array.cast(wide))))
    return found


def _float_to_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    found = array.cast(target)
    if target.bit_width < array.type.bit_width:
        _require(pc.or_(pc.equal(found.cast(array.type), array), pc.is_nan(array)))
    return found


def _require(holds: pa.BooleanArray) -> None:
    if pc.all(holds).as_py() is False:
        raise _CastFailed


def _cast_list(array: pa.Array, target: pa.DataType) -> pa.Array:
    array = _as_list(array)
    items = _cast(array.flatten(), target.value_type)
    return pa.ListArray.from_arrays(_offsets(array), items, type=target, mask=_nulls(array))


def _cast_map(array: pa.Array, target: pa.DataType) -> pa.Array:
    array = _as_list(array)
    entries = array.flatten()
    if not pa.types.is_struct(entries.type) or sorted(f.name for f in entries.type) != ["key", "value"]:
        raise _CastFailed
    children = dict(zip([f.name for f in entries.type], entries.flatten(), strict=True))
    if children["key"].null_count:
        raise _CastFailed
    keys, items = _cast(children["key"], target.key_type), _cast(children["value"], target.item_type)
    return pa.MapArray.from_arrays(_offsets(array), keys, items, type=target, mask=_nulls(array))


def _as_list(array: pa.Array) -> pa.ListArray:
    source = array.type
    if pa.types.is_map(source):
        return array.cast(pa.list_(pa.struct([("key", source.key_type), ("value", source.item_type)])))
    if pa.types.is_list(source):
        return array
    if pa.types.is_list_view(source) or pa.types.is_large_list_view(source):
        # Arrow's cast of a list view takes other items if the view has an order or an offset.
        return pa.ListArray.from_arrays(_offsets(array), array.flatten(), mask=_nulls(array))
    return array.cast(pa.list_(source.value_type))


def decoded(array: pa.DictionaryArray) -> pa.Array:
    """The values of a dictionary. Arrow has no way to repeat views, which Polars has as values."""
    values = array.dictionary
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        plain = values.cast(pa.large_string() if pa.types.is_string_view(values.type) else pa.large_binary())
        return plain.take(array.indices)
    return array.dictionary_decode()


def _offsets(array: pa.ListArray) -> pa.Array:
    """Where each list begins in ``array.flatten()``, which has nothing of those that are null."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _cast_struct(array: pa.Array, target: pa.DataType) -> pa.Array:
    names = [field.name for field in array.type]
    if len(set(names)) < len(names) or not {field.name for field in target}.issuperset(names):
        raise _CastFailed
    children = dict(zip(names, array.flatten(), strict=True))
    made = [
        _cast(children[field.name], field.type) if field.name in children else pa.nulls(len(array), field.type)
        for field in target
    ]
    return pa.StructArray.from_arrays(made, fields=list(target), mask=_nulls(array))


def _first_that_fails(column: pa.Array | pa.ChunkedArray, target: pa.DataType) -> int:
    """The first row of a column whose cast fails, by bisection."""
    fits, fails = 0, len(column)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        try:
            _cast_column(column.slice(fits, middle - fits), target)
        except _CastFailed:
            fails = middle
        else:
            fits = middle
    return fits
