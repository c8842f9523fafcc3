"""Conversions of single values, by the same rules as columns of tables.

A rule for each kind of type says which values certainly fit as they are, and converts the others. What is not of the
plain Python type of its column goes through Arrow and :func:`smq_storage.conversion.exact_cast.exact_cast`, so that
values and columns have one rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import MAXYEAR, UTC, date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from smq_storage.chunks.column_types import with_leaves
from smq_storage.chunks.python_times import NOT_IN_PYTHON
from smq_storage.conversion.exact_cast import InexactValue, does_not_fit, exact_cast, kind_of, show
from smq_storage.conversion.nested_conversion import nested_conversion
from smq_storage.conversion.time_conversion import require_python_time, time_in_units

# Returns the value as the batch will hold it. Raises InexactValue.
Convert = Callable[[object], object]

# Kinds of values whose bytes :func:`size` counts.
VARIABLE_SIZE = ("text", "bytes", "list", "struct", "map")

_OFFSET_BYTES = 4
_TIMES = ("time", "zoned time", "time of day")
# Bools, integers and floats among numpy's kinds of types.
_NUMBERS = "biuf"


# With ``c = value * _SINGLE_SPLIT``, ``c - (c - value)`` is the value rounded to the 24 bits of a float32.
_SINGLE_SPLIT = float((1 << 29) + 1)
# What the text of rules names; for decimals the smallest step of each scale.
NAMES: dict[str, Any] = {"date": date, "datetime": datetime, "time": time, "UTC": UTC, "Decimal": Decimal}
NAMES |= {f"unit{scale}": Decimal((0, (1,), -scale)) for scale in range(77)}


class Rule(NamedTuple):
    """How values of one type that are not null are stored."""

    certain_fit: str | None
    """A cheap condition, as Python text with VALUE for the value. Under it a value is stored as it is."""
    convert: Convert
    """Converts all other values."""


def is_micros(type_: pa.DataType) -> bool:
    """Whether a type of times has Python's own unit."""
    return bool(type_.unit == "us")


def width(type_: pa.DataType) -> int:
    """About how many bytes each value takes beside what :func:`size` counts."""
    if pa.types.is_struct(type_):
        return sum(width(field.type) for field in type_)
    return _OFFSET_BYTES if kind_of(type_) in VARIABLE_SIZE else -(-type_.bit_width // 8)


def size(value: object) -> int:
    """The bytes of a converted value's text, bytes, items and fields."""
    match value:
        case str():
            return len(value) if value.isascii() else len(value.encode())
        case bytes():
            return len(value)
        case list() | tuple():
            return sum(size(item) + 2 * _OFFSET_BYTES for item in value)
        case dict():
            return sum(size(item) + 2 * _OFFSET_BYTES for item in value.values())
        case Decimal():
            return 24  # beside the eight of each item
    return 0


@cache
def converter(target: pa.DataType) -> Convert:
    """The conversion of values that are not null."""
    rule = rule_of(target)
    if rule.certain_fit is None:
        return rule.convert
    fits = rule.certain_fit.replace("VALUE", "value")
    found: Convert = eval(f"lambda value: value if {fits} else convert(value)", NAMES | {"convert": rule.convert})
    return found


def rule_of(target: pa.DataType) -> Rule:
    """The rule of values of a type."""

    def by_arrow(value: object) -> object:
        return _by_arrow(value, target)

    match kind_of(target):
        case "bool":
            return Rule("type(VALUE) is bool", by_arrow)
        case "integer":
            return _integer(target)
        case "float" if target == pa.float64():
            return _float64(target)
        case "float":
            return _float32(target)
        case "decimal":
            return _decimal(target)
        case "text":
            return Rule("type(VALUE) is str and VALUE.isascii()", _text(target))
        case "bytes":
            return Rule("type(VALUE) is bytes", _bytes(target))
        case "date":
            return Rule("type(VALUE) is date", by_arrow)
        case "zoned time" | "time" | "time of day" if not is_micros(target):
            return Rule(None, time_in_units(target, _by_arrow))
        case "zoned time":
            return _zoned_time(target)
        case "time":
            return Rule("type(VALUE) is datetime and VALUE.tzinfo is None", by_arrow)
        case "time of day":
            return Rule("type(VALUE) is time and VALUE.tzinfo is None", by_arrow)
        case "list" | "struct" | "map":
            return Rule(None, nested_conversion(target, converter, _by_arrow))
    return Rule(None, by_arrow)


def _by_arrow(value: object, target: pa.DataType) -> object:
    """Converts a value of any type that Arrow knows, such as numpy's and pandas' scalars."""
    if getattr(value, "nanosecond", 0):  # of pandas.Timestamp, which Arrow takes for a datetime
        raise InexactValue(f"{show(value)} does not fit {target}: the value would change")
    if isinstance(value, time) and value.tzinfo is not None:
        raise InexactValue(f"{show(value)} does not fit {target}: a time of day has no time zone")
    plain = _plain_value(value)
    if plain is not None:
        return converter(target)(plain)
    try:
        array = pa.array([value])
        array.validate(full=True)  # Arrow makes text of bytes that are beside text in one list
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        raise _unknown(value, target) from None
    if array.null_count:
        raise _unknown(value, target)
    try:
        found = exact_cast(array, target)
    except InexactValue:
        if isinstance(value, Decimal | pa.Scalar):
            raise
        raise InexactValue(does_not_fit(show(value), array.type, target)) from None
    # Python has no nanoseconds, so these become whole numbers.
    units = with_leaves(target, lambda leaf: pa.int64() if _in_nanos(leaf) else leaf)
    if kind_of(target) in _TIMES and not is_micros(target):
        return found[0].value
    return found.cast(units)[0].as_py() if units != target else found[0].as_py()


def _in_nanos(type_: pa.DataType) -> bool:
    return kind_of(type_) in _TIMES and bool(type_.unit == "ns")


def _plain_value(value: object) -> object:
    """The same value of Python's own type, if it is a number of numpy or a time of pandas; else None.

    Much cheaper than an array for each value.
    """
    if isinstance(value, np.generic):
        plain = value.item() if value.dtype.kind in _NUMBERS else None
        return plain if type(plain) in (bool, int, float) else None  # a long double has no such type
    if type(value) is not datetime and isinstance(value, datetime):
        as_plain = getattr(value, "to_pydatetime", None)
        return as_plain() if as_plain is not None and value == value else None  # a NaT is not equal to itself
    return None


def _unknown(value: object, target: pa.DataType) -> InexactValue:
    return InexactValue(f"{show(value)} ({type(value).__name__}) does not fit {target}")


def _integer(target: pa.DataType) -> Rule:
    bits = target.bit_width
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    if pa.types.is_unsigned_integer(target):
        low, high = 0, (1 << bits) - 1

    def convert(value: object) -> object:
        if type(value) is int:
            raise InexactValue(f"{show(value)} does not fit {target}: it is not in {low} to {high}")
        return _by_arrow(value, target)

    return Rule(f"type(VALUE) is int and {low} <= VALUE <= {high}", convert)


def _float64(target: pa.DataType) -> Rule:
    def convert(value: object) -> object:
        return _integer_as_float(value, target) if type(value) is int else _by_arrow(value, target)

    return Rule("type(VALUE) is float", convert)


def _float32(target: pa.DataType) -> Rule:
    # Not for the smallest ones, which have fewer bits. The largest one is a little above the bound.
    in_range = "(1.2e-38 < VALUE < 3.4e38 or -3.4e38 < VALUE < -1.2e-38 or VALUE == 0.0)"
    single = struct.Struct("f")

    def convert(value: object) -> object:
        if type(value) is int:
            value = _integer_as_float(value, target)
        if type(value) is not float:
            return _by_arrow(value, target)
        try:
            if single.unpack(single.pack(value))[0] == value or value != value:
                return value
        except OverflowError:
            pass
        raise InexactValue(does_not_fit(show(value), pa.float64(), target))

    is_single = f"(c := VALUE * {_SINGLE_SPLIT!r}) - (c - VALUE) == VALUE"
    return Rule(f"type(VALUE) is float and {in_range} and {is_single}", convert)


def _integer_as_float(value: int, target: pa.DataType) -> float:
    # The range is that of tables, whose integers have at most 64 bits.
    if -(1 << 63) <= value < 1 << 64 and (found := float(value)) == value:
        return found
    raise InexactValue(f"{show(value)} does not fit {target}: the value would change")


def _text(target: pa.DataType) -> Convert:
    def convert(value: object) -> object:
        if type(value) is not str:
            return _by_arrow(value, target)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InexactValue(f"{show(value)} does not fit {target}: it is not valid Unicode") from None
        return value

    return convert


def _bytes(target: pa.DataType) -> Convert:
    return lambda value: bytes(value) if isinstance(value, bytearray | memoryview) else _by_arrow(value, target)


def _zoned_time(target: pa.DataType) -> Rule:
    def convert(value: object) -> object:
        if type(value) is not datetime or value.utcoffset() is None:
            return _by_arrow(value, target)
        try:
            found = value if value.tzinfo is UTC else value.astimezone(UTC)
        except OverflowError:
            raise InexactValue(f"{show(value)} does not fit {target}: {NOT_IN_PYTHON}") from None
        if not 1 < found.year < MAXYEAR:
            require_python_time(value, pa.array([found], target))
        return found

    in_all_zones = f" and 1 < VALUE.year < {MAXYEAR}" if target.tz != "UTC" else ""
    return Rule(f"type(VALUE) is datetime and VALUE.tzinfo is UTC{in_all_zones}", convert)


def _decimal(target: pa.DataType) -> Rule:
    unit = f"unit{target.scale}"
    exact = Context(prec=target.precision, traps=[Inexact, InvalidOperation])

    def convert(value: object) -> object:
        if type(value) is int:
            value = Decimal(value)  # Arrow infers no type for integers of more than 63 bits
        if type(value) is Decimal and value.is_finite():
            try:
                return value.quantize(NAMES[unit], None, exact)
            except (Inexact, InvalidOperation):
                pass
        return _by_arrow(value, target)

    in_range = f"VALUE.adjusted() < {target.precision - target.scale}"
    return Rule(f"type(VALUE) is Decimal and VALUE.same_quantum({unit}) and {in_range}", convert)
