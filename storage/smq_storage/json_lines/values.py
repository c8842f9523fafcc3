"""Values of columns in JSON: what `smq consume` writes, `smq publish` reads as the same value again.

=========================  ============================================================================================
column                     in JSON
=========================  ============================================================================================
bool, integers, floats     as they are; a float that is not finite is the text NaN, Infinity or -Infinity
decimals                   text; a number is read, too
string                     text
binary                     text if all bytes of the field are UTF-8, otherwise base64 in the field ``<name>_base64``
dates, times               ISO 8601; what has a zone is in UTC
list                       a list
struct                     an object, whose fields are like those of a line
map                        an object if its keys are different texts, otherwise a list of pairs; both are read
=========================  ============================================================================================
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from smq_core.errors import InvalidRequest
from smq_core.model.units import format_time
from smq_storage.conversion.exact_cast import kind_of
from smq_storage.json_lines.fields import (
    BASE64,
    InvalidField,
    JsonObject,
    from_base64,
    in_utc,
    time_from_text,
    to_bytes,
)

# Makes bytes of their text in JSON. Raises InvalidField.
OfBytes = Callable[[Any], bytes | None]

_MAX_INTEGER_DIGITS = 20
_SPECIAL_FLOATS = ("NaN", "Infinity", "-Infinity")
_NANOSECONDS = re.compile(r"(.*:\d\d\.\d{6})(\d{1,3})(0*)(Z|[+-][\d:]*)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# ---- writing


def json_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with only what JSON has. Raises InvalidRequest."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if _is_text(value):
            made[name] = to_json(value, _text)
        elif name + BASE64 in row:
            raise InvalidRequest(
                f"column {name} has bytes that are not text, and JSON has no field for them because of the column "
                f"{name}{BASE64}; use --format parquet"
            )
        else:
            made[name + BASE64] = to_json(value, _base64)
    return made


def to_json(value: Any, of_bytes: Callable[[bytes], str]) -> Any:
    """The value with only what JSON has. Raises InvalidRequest as :func:`json_object` does."""
    match value:
        case bytes():
            return of_bytes(value)
        case float() if not math.isfinite(value):
            return json.dumps(value)  # one of _SPECIAL_FLOATS
        case datetime() | date():
            return iso(value)
        case Decimal() | time() | timedelta():
            return str(value)
        case [tuple(), *_] if _is_object(value):
            return {key: to_json(item, of_bytes) for key, item in value}
        case list() | tuple():
            return [to_json(item, of_bytes) for item in value]
        case dict():
            return json_object(value)
    return value


def iso(at: datetime | date) -> str:
    """A date, or a time as all of the command line."""
    return format_time(at) if isinstance(at, datetime) else at.isoformat()


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


def _is_object(pairs: list[tuple[Any, Any]]) -> bool:
    """Whether an object of JSON can have the pairs of a map."""
    keys = [key for key, _ in pairs]
    return all(isinstance(key, str) for key in keys) and len(set(keys)) == len(keys)


def _text(value: bytes) -> str:
    return value.decode()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


# ---- reading


def has_bytes(type_: pa.DataType) -> bool:
    """Whether values of a type have bytes that are not in a struct, whose fields of bytes have their own names."""
    match kind_of(type_):
        case "list":
            return has_bytes(type_.value_type)
        case "map":
            return has_bytes(type_.key_type) or has_bytes(type_.item_type)
        case kind:
            return kind == "bytes"


def from_json(name: str, value: Any, target: pa.DataType, of_bytes: OfBytes = to_bytes) -> object:
    """The value as Python, or else Arrow, has it. What does not fit may be returned as it is. Raises InvalidField."""
    match kind_of(target):
        case "list" if isinstance(value, list):
            return [from_json(name, it, target.value_type, of_bytes) for it in value]
        case "struct" if isinstance(value, JsonObject):
            return _struct(name, value, target)
        case "map" if isinstance(value, JsonObject | list):
            return _map(name, value, target, of_bytes)
        case "float" if isinstance(value, int | Decimal) and not isinstance(value, bool):
            return _nearest_float(name, value, target)
        case "float" if value in _SPECIAL_FLOATS:
            return float(value)
        case "decimal" if isinstance(value, str):
            return _decimal(name, value)
        case "bytes" if isinstance(value, str):
            return of_bytes(value)
        case "date" if isinstance(value, str):
            return _date(name, value)
        case ("time" | "zoned time" | "time of day") as kind if value is not None:
            return _time(name, value, target, kind)
        case "decimal":
            return value
        case "integer" if isinstance(value, Decimal) and value == value.to_integral_value():
            return int(value) if value.adjusted() < _MAX_INTEGER_DIGITS else value
    return float(value) if isinstance(value, Decimal) else value


def _struct(name: str, value: JsonObject, target: pa.DataType) -> dict[str, object]:
    value.check_names()
    types = {field.name: field.type for field in target}
    found: dict[str, object] = {}
    for field, inside in value.items():
        column = field.removesuffix(BASE64)
        if field in types:
            found[field] = from_json(f"{name}.{field}", inside, types[field])
        elif column in types and has_bytes(types[column]):
            if column in value:
                raise InvalidField(f"{name} has {column} and {field}; one of them is enough")
            found[column] = from_json(field, inside, types[column], partial(from_base64, field))
        else:
            raise InvalidField(f"column {name}: the struct has no field {field}; it has {', '.join(types)}")
    return found


def _map(name: str, value: Any, target: pa.DataType, of_bytes: OfBytes) -> list[tuple[object, object]]:
    if isinstance(value, JsonObject):
        value.check_names()
    pairs = value.items() if isinstance(value, JsonObject) else value
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise InvalidField(f'column {name}: a map is {{"key": value}} or [[key, value]]')
    return [
        (from_json(name, key, target.key_type, of_bytes), from_json(name, item, target.item_type, of_bytes))
        for key, item in pairs
    ]


def _time(name: str, value: Any, target: pa.DataType, kind: str) -> object:
    """A time from ISO 8601; without a zone it is in UTC where the column has one."""
    nanos = _NANOSECONDS.fullmatch(value) if target.unit == "ns" and isinstance(value, str) else None
    text = f"{nanos[1]}{nanos[4] or ''}" if nanos else value
    found: datetime | time
    if kind == "time of day":
        found = _time_of_day(name, text)
    else:
        found = time_from_text(name, text)
        found = in_utc(found) if kind == "zoned time" else found
    if nanos is None:
        return found
    if isinstance(found, time):
        since = (((found.hour * 60) + found.minute) * 60 + found.second) * 1_000_000 + found.microsecond
    else:
        delta = found.replace(tzinfo=UTC) - _EPOCH
        since = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    try:
        return pa.scalar(since * 1000 + int(nanos[2].ljust(3, "0")), target)
    except (pa.ArrowException, OverflowError):
        raise InvalidField(f"column {name}: {value} is out of the range of {target}") from None


def _time_of_day(name: str, value: Any) -> time:
    found: time | None = None
    with suppress(TypeError, ValueError):
        found = time.fromisoformat(value)
    if found is None or found.tzinfo is not None or re.search(r"\.\d{6}\d*[1-9]", value):
        raise InvalidField(f"column {name}: {value!r} is no time of day such as 12:30:00")
    return found


def _nearest_float(name: str, value: int | Decimal, target: pa.DataType) -> float:
    try:
        with np.errstate(over="raise"):
            found = float(np.float32(float(value))) if target == pa.float32() else float(value)
        if not np.isinf(found):
            return found
    except (OverflowError, FloatingPointError):
        pass
    raise InvalidField(f"column {name}: {value} is out of the range of {target}")


def _decimal(name: str, value: str) -> Decimal:
    try:
        return Decimal(value)
    except ArithmeticError:
        raise InvalidField(f"column {name}: {value!r} is no decimal number") from None


def _date(name: str, value: str) -> date:
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise InvalidField(f"column {name}: {value!r} is no date such as 2024-05-01") from None
