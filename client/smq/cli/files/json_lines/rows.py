"""Messages as JSON objects, as `smq consume` writes them; `smq publish` stores the same messages from them again.

Bytes are text if they are UTF-8. Otherwise the field is named ``<name>_base64``, and all bytes in it are base64.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from smq.cli.output import formatting
from smq_core.errors import InvalidRequest
from smq_storage.chunks.column_types import with_leaves
from smq_storage.chunks.python_times import python_values

# What the name of a field ends in whose bytes are base64.
BASE64 = "_base64"


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


def json_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with only what JSON has. Raises InvalidRequest."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if _is_text(value):
            made[name] = _plain(value, _text)
        elif name + BASE64 in row:
            raise InvalidRequest(
                f"column {name} has bytes that are not text, and JSON has no field for them because of the column "
                f"{name}{BASE64}; use --format parquet"
            )
        else:
            made[name + BASE64] = _plain(value, _base64)
    return made


def iso(at: datetime | date) -> str:
    """A date, or a time as all of the command line."""
    return formatting.iso(at) if isinstance(at, datetime) else at.isoformat()


def _is_text(value: Any) -> bool:
    """Whether all bytes in the value, except those of structs, are UTF-8."""
    if isinstance(value, list | tuple):
        return all(_is_text(item) for item in value)
    if not isinstance(value, bytes):
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _plain(value: Any, of_bytes: Any) -> Any:
    match value:
        case bytes():
            return of_bytes(value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case datetime() | date():
            return iso(value)
        case Decimal() | time() | timedelta():
            return str(value)
        case [tuple(), *_] if _is_object(value):
            return {key: _plain(item, of_bytes) for key, item in value}
        case list() | tuple():
            return [_plain(item, of_bytes) for item in value]
        case dict():
            return json_object(value)
    return value


def _is_object(pairs: list[tuple[Any, Any]]) -> bool:
    """Whether an object of JSON can have the pairs of a map."""
    keys = [key for key, _ in pairs]
    return all(isinstance(key, str) for key in keys) and len(set(keys)) == len(keys)


def _text(value: bytes) -> str:
    return value.decode()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
