"""Compiles a schema to one Python function that converts a message, because a call for each value would cost the most.

The function leaves values of a column's plain Python type that certainly fit as they are. For all others it calls the
column's conversion (:mod:`smq.producing.encoding.value_conversion`), which decides. So it is faster than the
conversions, but never more lenient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import MAXYEAR, UTC, date, datetime, time
from decimal import Decimal
from operator import itemgetter
from sys import intern
from typing import Any

import pyarrow as pa

from smq.producing.encoding.exact_cast import kind_of
from smq.producing.encoding.value_conversion import (
    VARIABLE_SIZE,
    Convert,
    decimal_unit,
    integer_range,
    is_micros,
    size,
)

Row = tuple[object, ...]

# With ``c = value * SINGLE_SPLIT``, ``c - (c - value)`` is the value rounded to the 24 bits of a float32.
SINGLE_SPLIT = float((1 << 29) + 1)

# Returns a message's row as the batch will hold it, and its size in bytes.
RowConversion = Callable[[object], tuple[Row, int]]


def compile_row_conversion(
    fields: Sequence[pa.Field], conversions: Sequence[Convert], values_of: Callable[[object], Row], fixed_bytes: int
) -> RowConversion:
    """The conversion of messages with these columns. It raises what the conversions and ``values_of`` raise.

    ``values_of`` finds the values of any message, in the order of the columns. A dictionary that has just these columns
    does not need it. ``fixed_bytes`` is what a row takes beside its text, bytes and nested values.
    """
    unpacked = "".join(f"v{number}, " for number in range(len(fields)))
    lines = ["def convert(message):"]
    if len(fields) > 1:  # for one name, an itemgetter returns a value and no tuple
        lines += [
            "    try:",
            f"        has_all = type(message) is dict and len(message) == {len(fields)}",
            f"        {unpacked}= items_of(message) if has_all else values_of(message)",
            "    except KeyError:",  # it lacks a column, and has another that is unknown
            f"        {unpacked}= values_of(message)",
        ]
    else:
        lines.append(f"    {unpacked}= values_of(message)")
    lines.append(f"    size = {fixed_bytes}")
    for number, field in enumerate(fields):
        lines += _lines_of_column(number, field)
    lines.append(f"    return ({unpacked}), size")
    scope: dict[str, Any] = {"size_of": size, "date": date, "datetime": datetime, "time": time, "UTC": UTC}
    names = [intern(field.name) for field in fields]  # as those in a program's text are, so that finding them is quick
    scope |= {"Decimal": Decimal, "values_of": values_of, "items_of": itemgetter(*names)}
    scope |= {f"convert{number}": convert for number, convert in enumerate(conversions)}
    for number, field in enumerate(fields):
        if kind_of(field.type) == "decimal":
            scope[f"unit{number}"] = decimal_unit(field.type)
    # The text has numbers and what is in this module. Names of columns, which a user chooses, are not in it.
    exec("\n".join(lines), scope)
    convert: RowConversion = scope["convert"]
    return convert


def _lines_of_column(number: int, field: pa.Field) -> list[str]:
    name, convert = f"v{number}", f"convert{number}"
    fits = _certain_fit(number, field.type)
    conditions = [f"not ({fits})"] if fits else []
    if field.nullable:
        conditions.append(f"{name} is not None")
    converted = [f"    if {' and '.join(conditions) or True}:", f"        {name} = {convert}({name})"]
    match kind_of(field.type):
        case "text":
            return [
                f"    if type({name}) is str and {name}.isascii():",
                f"        size += len({name})",
                f"    elif {name} is not None:" if field.nullable else "    else:",
                f"        {name} = {convert}({name})",
                f"        size += size_of({name})",
            ]
        case "bytes":
            return [*converted, f"    if {name} is not None:", f"        size += len({name})"]
        case kind if kind in VARIABLE_SIZE:
            return [*converted, f"    if {name} is not None:", f"        size += size_of({name})"]
    return converted


def _certain_fit(number: int, type_: pa.DataType) -> str | None:
    """A condition under which the value of that column fits as it is, if there is one that is cheap."""
    name = f"v{number}"
    match kind_of(type_):
        case "bool":
            return f"type({name}) is bool"
        case "integer":
            low, high = integer_range(type_)
            return f"type({name}) is int and {low} <= {name} <= {high}"
        case "float" if type_ == pa.float64():
            return f"type({name}) is float"
        case "float" if type_ == pa.float32():
            # Not for the smallest ones, which have fewer bits. The largest one is a little above the bound.
            in_range = f"(1.2e-38 < {name} < 3.4e38 or -3.4e38 < {name} < -1.2e-38 or {name} == 0.0)"
            return f"type({name}) is float and {in_range} and (c := {name} * {SINGLE_SPLIT!r}) - (c - {name}) == {name}"
        case "decimal":
            in_range = f"{name}.adjusted() < {type_.precision - type_.scale}"
            return f"type({name}) is Decimal and {name}.same_quantum(unit{number}) and {in_range}"
        case "bytes":
            return f"type({name}) is bytes"
        case "date":
            return f"type({name}) is date"
        case "zoned time" if is_micros(type_):
            in_all_zones = f" and 1 < {name}.year < {MAXYEAR}" if type_.tz != "UTC" else ""
            return f"type({name}) is datetime and {name}.tzinfo is UTC{in_all_zones}"
        case "time" if is_micros(type_):
            return f"type({name}) is datetime and {name}.tzinfo is None"
        case "time of day" if is_micros(type_):
            return f"type({name}) is time and {name}.tzinfo is None"
    return None
