"""What the lines of `smq publish` have in common, with and without a schema: lines, headers, times and base64."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from smq_core.errors import InvalidRequest, SchemaMismatch
from smq_storage.chunks.schemas import HEADERS, TIMESTAMP
from smq_storage.conversion.time_conversion import check_timestamp

# What the name of a field ends in whose bytes are base64.
BASE64 = "_base64"
TOPIC_FIELD = "_topic"
# Fields of `smq consume --meta` that every message gets anew; they are ignored in the input.
POSITION_FIELDS = (TOPIC_FIELD, "_segment", "_offset", "partition", "appended")

Headers = list[tuple[str, bytes | None]]

_HEADER_SHAPES = 'headers are {"name": "text"}, [["name", "text"]] or [{"key": "name", "value": "text"}]'
_ONE_VALUE_A_LINE = (
    ". Each line is one JSON value; `jq -c '.[]'` writes the items of an array so, and `jq -c .` an object"
)
_BELOW_MICROSECONDS = re.compile(r"\.\d{6}\d*[1-9]")


class InvalidField(Exception):
    """What is wrong with a line."""


class JsonObject(dict[str, Any]):
    """An object of a line; a name that occurs twice is an error where the object has a meaning."""

    duplicate: str | None = None

    @staticmethod
    def of(pairs: list[tuple[str, Any]]) -> JsonObject:
        made = JsonObject(pairs)
        if len(made) != len(pairs):
            names = [name for name, _ in pairs]
            made.duplicate = next(name for name in names if names.count(name) > 1)
        return made

    def check_names(self) -> None:
        if self.duplicate is not None:
            raise InvalidField(f"the field {self.duplicate} occurs twice")


def optional_columns(headers: Sequence[Headers | None], times: Sequence[int | None]) -> dict[str, pa.Array]:
    """The columns ``headers`` and ``timestamp`` (from microseconds), each only if some message has a value for it."""
    columns = {}
    if any(found is not None for found in headers):
        columns["headers"] = pa.array(headers, HEADERS)
    if any(found is not None for found in times):
        columns["timestamp"] = pa.array(times, pa.int64()).cast(TIMESTAMP)
    return columns


class LineDecoder:
    """Decodes lines; ``parse_float`` makes numbers with a fraction, ``constants`` NaN and the infinities."""

    def __init__(self, parse_float: Callable[[str], Any], constants: Callable[[str], Any]) -> None:
        self._decoder = json.JSONDecoder(
            object_pairs_hook=JsonObject.of, parse_float=parse_float, parse_constant=constants
        )

    def decode(self, text: str) -> Any:
        try:
            return self._decoder.decode(text)
        except json.JSONDecodeError as error:
            problem = f"{error.msg} at character {error.colno}"
        except (ValueError, RecursionError) as error:
            problem = str(error)
        hint = _ONE_VALUE_A_LINE if text[:1] in ("[", "{") else ""
        raise InvalidField(f"it is no JSON: {_start(text)!r} ({problem}){hint}")

    def end_of(self, text: str, at: int) -> int:
        """Where the value that begins there ends, in text that was decoded before."""
        return self._decoder.raw_decode(text, at)[1]


def lines(block: bytes, first_line: int, convert: Callable[[str], None]) -> None:
    """Calls ``convert`` with every line of a block that is not blank. Raises SchemaMismatch with the line's number."""
    for number, line in _numbered(block, first_line):
        try:
            try:
                text = line.decode()
            except UnicodeDecodeError:
                raise InvalidField(f"it is not UTF-8: {_start(repr(line)[2:-1])}") from None
            convert(text)
        except InvalidField as problem:
            raise SchemaMismatch(f"line {number:,}: {problem}") from None


def _numbered(block: bytes, first_line: int) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(block.split(b"\n"), first_line):
        stripped = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
        if stripped:
            yield number, stripped


def headers_of(found: Any) -> Headers | None:
    """The headers of a message. Raises InvalidField."""
    if found is None:
        return None
    if isinstance(found, JsonObject):
        found.check_names()
        return [(name, _header_value(name, value)) for name, value in found.items()]
    if not isinstance(found, list):
        raise InvalidField(f"{_HEADER_SHAPES}, not {_start(repr(found))}")
    return [_header(item) for item in found]


def _header(item: Any) -> tuple[str, bytes | None]:
    if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str):
        return _encodable(item[0]), _header_value(*item)
    if isinstance(item, JsonObject) and isinstance(item.get("key"), str):
        item.check_names()
        name = item["key"]
        if set(item) == {"key", "value"}:
            return _encodable(name), _header_value(name, item["value"])
        if set(item) == {"key", "value" + BASE64}:
            return _encodable(name), from_base64(f"the header {name}", item["value" + BASE64])
    raise InvalidField(f"{_HEADER_SHAPES}, not {_start(repr(item))}")


def _header_value(name: str, value: Any) -> bytes | None:
    _encodable(name)
    if value is not None and not isinstance(value, str):
        raise InvalidField(f"the header {name} must be text or null, not {_start(json.dumps(value, default=str))}")
    return None if value is None else to_bytes(value)


def time_of(name: str, found: Any) -> datetime | int | None:
    """A time as ISO 8601, or as microseconds since 1970. Raises InvalidField."""
    if found is None or (isinstance(found, int) and not isinstance(found, bool)):
        return found
    return time_from_text(name, found)


def time_from_text(name: str, found: Any) -> datetime:
    """A time from ISO 8601, with its zone if it has one. Raises InvalidField."""
    if not isinstance(found, str):
        raise InvalidField(f"{name} must be a time such as 2024-05-01T12:00:00Z, not {_start(repr(found))}")
    if _BELOW_MICROSECONDS.search(found):
        raise InvalidField(f"{name} has {found}, which is not whole microseconds")
    try:
        return datetime.fromisoformat(found)
    except ValueError:
        raise InvalidField(f"{name} must be a time such as 2024-05-01T12:00:00Z, not {_start(repr(found))}") from None


def in_utc(at: datetime) -> datetime:
    """The time in UTC; one without a zone is in UTC."""
    try:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        raise InvalidField(f"{at} is out of range") from None


def micros(at: datetime | int | None) -> int | None:
    """The time of a message in microseconds since 1970. Raises InvalidField."""
    try:
        return None if at is None else check_timestamp(at)
    except InvalidRequest as error:
        raise InvalidField(error.message) from None


def from_base64(name: str, found: Any) -> bytes | None:
    """Raises InvalidField."""
    if found is None:
        return None
    try:
        return base64.b64decode(found, validate=True) if isinstance(found, str) else _not_base64(name, found)
    except ValueError:
        return _not_base64(name, found)


def _not_base64(name: str, found: Any) -> bytes:
    raise InvalidField(f"{name} must be base64, not {_start(repr(found))}")


def to_bytes(text: str) -> bytes:
    """UTF-8. Raises InvalidField."""
    return _encodable(text).encode()


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidField(f"{_start(repr(text))} is not valid Unicode") from None
    return text


def _start(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
