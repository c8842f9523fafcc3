"""Rows of tables as JSON lines, as `smq consume` writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from smq_storage.chunks.column_types import with_leaves
from smq_storage.chunks.python_times import python_values
from smq_storage.json_lines.values import json_object


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as Python objects, with text for times that have nanoseconds, because Python has none.

    A time that Python does not have at all is the nearest one that it has.
    """

    def has_nanos(type_: pa.DataType) -> bool:
        return bool(pa.types.is_timestamp(type_) or pa.types.is_time(type_)) and type_.unit == "ns"

    def in_utc(leaf: pa.DataType) -> pa.DataType:
        return pa.timestamp("ns", "UTC") if has_nanos(leaf) and getattr(leaf, "tz", None) is not None else leaf

    def text(leaf: pa.DataType) -> pa.DataType:
        return pa.string() if has_nanos(leaf) else leaf

    cast: list[pa.Field] = []
    for number, field in enumerate(table.schema):
        shown = with_leaves(field.type, text)
        if shown != field.type:
            column = table.column(number).cast(with_leaves(field.type, in_utc)).cast(shown)
            table = table.set_column(number, field.name, column)
            cast.append(field)
    rows = python_values(table)
    for field in cast:
        for row in rows:
            row[field.name] = _with_t(row[field.name], field.type)
    return rows


def _with_t(value: Any, type_: pa.DataType) -> Any:
    """The value with a T between date and time of what was cast to text, where Arrow has a space."""
    if value is None:
        return None
    if pa.types.is_timestamp(type_):
        return value.replace(" ", "T") if isinstance(value, str) else value
    if pa.types.is_map(type_):
        return [(_with_t(key, type_.key_type), _with_t(item, type_.item_type)) for key, item in value]
    if pa.types.is_struct(type_):
        return {field.name: _with_t(value[field.name], field.type) for field in type_}
    return [_with_t(item, type_.value_type) for item in value] if isinstance(value, list) else value


def json_line(row: Mapping[str, Any]) -> bytes:
    """The row of a table as one line of JSON without its end; a message without headers has no such field.

    Raises InvalidRequest for bytes that have no field.
    """
    made = {name: value for name, value in row.items() if name != "headers" or value is not None}
    return json.dumps(json_object(made), ensure_ascii=False, allow_nan=False).encode()
