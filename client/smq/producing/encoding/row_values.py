"""Rows of single messages, checked value by value when they are sent, by the same rules as columns of tables.

A batch is encoded after ``send`` has returned, so nothing may fail then. What is not of the plain Python type of its
column goes through Arrow and :func:`smq.producing.encoding.exact_cast.exact_cast`, so that both ways have one rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from smq.producing.encoding.exact_cast import InexactValue, does_not_fit, exact_cast, kind_of, show

Convert = Callable[[object], object]
"""Returns the value as the batch will hold it. Raises InexactValue."""

Row = tuple[object, ...]

_VARIABLE_SIZE = ("text", "bytes", "list")
_OFFSET_BYTES = 4


class RowConverter:
    """Converts mappings to rows with the columns of a schema, in their order. ``dropped``: names of former columns."""

    def __init__(self, schema: pa.Schema, dropped: Iterable[str] = ()) -> None:
        self._names = frozenset(schema.names)
        self._dropped = frozenset(dropped)
        self._columns = [(f.name, _nullable(f.type) if f.nullable else _required(f.type)) for f in schema]
        self._sized = [i for i, f in enumerate(schema) if kind_of(f.type) in _VARIABLE_SIZE]
        self._fixed_bytes = sum(_width(f.type) for f in schema)

    def convert(self, value: object) -> tuple[Row, int]:
        """Returns the row and its size in bytes. Raises InexactValue."""
        if not isinstance(value, Mapping):
            raise InexactValue(f"a value must be a mapping of columns, not {type(value).__name__}")
        if not self._names.issuperset(value):
            raise InexactValue(no_such_columns([str(n) for n in value if n not in self._names], self._dropped))
        row = []
        for name, convert in self._columns:
            try:
                row.append(convert(value.get(name)))
            except InexactValue as problem:
                raise InexactValue(f"column {name}: {problem.reason}") from None
        return tuple(row), self._fixed_bytes + sum(_size(row[i]) for i in self._sized)


def no_such_columns(names: Iterable[str], dropped: Iterable[str]) -> str:
    """Why these columns are refused."""
    return "the topic has no column " + ", ".join(f"{n} (it was dropped)" if n in dropped else n for n in names)


def _nullable(target: pa.DataType) -> Convert:
    convert = _converter(target)
    return lambda value: None if value is None else convert(value)


def _required(target: pa.DataType) -> Convert:
    convert = _converter(target)

    def required(value: object) -> object:
        if value is None:
            raise InexactValue("it may not be null")
        return convert(value)

    return required


def _converter(target: pa.DataType) -> Convert:
    """The conversion of values that are not null."""
    match kind_of(target):
        case "integer":
            return _integer(target)
        case "float":
            return _float64(target) if target == pa.float64() else _float32(target)
        case "text":
            return _text(target)
        case "bytes":
            return _bytes(target)
        case "zoned time":
            return _zoned_time(target)
        case "time":
            return _naive_time(target)
        case "decimal":
            return _decimal(target)
        case "list":
            return _list(target)
        case "bool":
            return _plain(target, bool)
        case "date":
            return _plain(target, date)
    return lambda value: _by_arrow(value, target)


def _by_arrow(value: object, target: pa.DataType) -> object:
    """Converts a value of any type that Arrow knows, such as numpy's and pandas' scalars."""
    if getattr(value, "nanosecond", 0):  # of pandas.Timestamp, which Arrow takes for a datetime
        raise InexactValue(f"{show(value)} does not fit {target}: the value would change")
    try:
        array = pa.array([value])
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        raise _unknown(value, target) from None
    if array.null_count:
        raise _unknown(value, target)
    try:
        return exact_cast(array, target)[0].as_py()
    except InexactValue:
        if isinstance(value, Decimal | pa.Scalar):
            raise
        raise InexactValue(does_not_fit(show(value), array.type, target)) from None


def _unknown(value: object, target: pa.DataType) -> InexactValue:
    return InexactValue(f"{show(value)} ({type(value).__name__}) does not fit {target}")


def _plain(target: pa.DataType, type_: type) -> Convert:
    return lambda value: value if type(value) is type_ else _by_arrow(value, target)


def _integer(target: pa.DataType) -> Convert:
    bits = target.bit_width
    low, high = (
        (0, (1 << bits) - 1) if pa.types.is_unsigned_integer(target) else (-(1 << bits - 1), (1 << bits - 1) - 1)
    )

    def convert(value: object) -> object:
        if type(value) is int:
            if low <= value <= high:
                return value
            raise InexactValue(f"{show(value)} does not fit {target}: it is not in {low} to {high}")
        return _by_arrow(value, target)

    return convert


def _float64(target: pa.DataType) -> Convert:
    def convert(value: object) -> object:
        if type(value) is float:
            return value
        return _integer_as_float(value, target) if type(value) is int else _by_arrow(value, target)

    return convert


def _float32(target: pa.DataType) -> Convert:
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

    return convert


def _integer_as_float(value: int, target: pa.DataType) -> float:
    # The range is that of tables, whose integers have at most 64 bits.
    if -(1 << 63) <= value < 1 << 64 and (found := float(value)) == value:
        return found
    raise InexactValue(f"{show(value)} does not fit {target}: the value would change")


def _text(target: pa.DataType) -> Convert:
    def convert(value: object) -> object:
        if type(value) is not str:
            return _by_arrow(value, target)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise InexactValue(f"{show(value)} does not fit {target}: it is not valid Unicode") from None
        return value

    return convert


def _bytes(target: pa.DataType) -> Convert:
    def convert(value: object) -> object:
        if type(value) is bytes:
            return value
        return bytes(value) if isinstance(value, bytearray | memoryview) else _by_arrow(value, target)

    return convert


def _zoned_time(target: pa.DataType) -> Convert:
    def convert(value: object) -> object:
        if type(value) is datetime:
            if value.tzinfo is UTC:
                return value
            if value.utcoffset() is not None:
                try:
                    return value.astimezone(UTC)
                except OverflowError:
                    raise _unknown(value, target) from None
        return _by_arrow(value, target)

    return convert


def _naive_time(target: pa.DataType) -> Convert:
    return lambda value: value if type(value) is datetime and value.tzinfo is None else _by_arrow(value, target)


def _decimal(target: pa.DataType) -> Convert:
    # Arrow infers no type for integers of more than 63 bits.
    return lambda value: _by_arrow(Decimal(value) if type(value) is int else value, target)


def _list(target: pa.DataType) -> Convert:
    item = _nullable(target.value_type)

    def convert(value: object) -> object:
        return [item(it) for it in value] if isinstance(value, list | tuple) else _by_arrow(value, target)

    return convert


def _width(type_: pa.DataType) -> int:
    """About how many bytes each value takes beside what :func:`_size` counts."""
    return _OFFSET_BYTES if kind_of(type_) in _VARIABLE_SIZE else -(-type_.bit_width // 8)


def _size(value: object) -> int:
    match value:
        case str():
            return len(value) if value.isascii() else len(value.encode())
        case bytes():
            return len(value)
        case list():
            return sum(_size(item) + 2 * _OFFSET_BYTES for item in value)
        case Decimal():
            return 8  # beside the eight of each item
    return 0
