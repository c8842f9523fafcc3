"""Compiles a schema to one Python function that converts a message, because a call for each value would cost the most.

The rules are those of single values (:mod:`smq_storage.conversion.value_conversion`): the function has their conditions
in its text, and calls a column's conversion for a value that does not certainly fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from sys import intern

import pyarrow as pa

from smq_storage.conversion.exact_cast import InexactValue, kind_of
from smq_storage.conversion.value_conversion import NAMES, VARIABLE_SIZE, Convert, rule_of, size

Row = tuple[object, ...]

# Returns a message's row as the batch will hold it, and its size in bytes.
RowConversion = Callable[[object], tuple[Row, int]]


def compile_row_conversion(
    fields: Sequence[pa.Field], values_of: Callable[[object], Row], fixed_bytes: int
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
    names = [intern(field.name) for field in fields]  # as those in a program's text are, so that finding them is quick
    scope = NAMES | {"size_of": size, "values_of": values_of, "items_of": itemgetter(*names)}
    for number, field in enumerate(fields):
        rule = rule_of(field.type)
        lines += _lines_of_column(number, field, rule.certain_fit)
        scope[f"convert{number}"] = _of_column(field, rule.convert)
    lines.append(f"    return ({unpacked}), size")
    # The text has numbers and what is in this module. Names of columns, which a user chooses, are not in it.
    exec("\n".join(lines), scope)
    convert: RowConversion = scope["convert"]
    return convert


def _lines_of_column(number: int, field: pa.Field, certain_fit: str | None) -> list[str]:
    name, counted = f"v{number}", kind_of(field.type) in VARIABLE_SIZE
    return [
        f"    if {(certain_fit or 'False').replace('VALUE', name)}:",
        f"        {f'size += len({name})' if counted else 'pass'}",
        f"    elif {f'{name} is not None' if field.nullable else 'True'}:",
        f"        {name} = convert{number}({name})",
        *([f"        size += size_of({name})"] if counted else []),
    ]


def _of_column(field: pa.Field, convert: Convert) -> Convert:
    """The conversion of a column's values, of None only where it may not be null. Its errors name the column."""

    def convert_column(value: object) -> object:
        try:
            if value is None:
                raise InexactValue("it may not be null")
            return convert(value)
        except InexactValue as problem:
            raise InexactValue(problem.reason, problem.row, field.name) from None

    return convert_column
