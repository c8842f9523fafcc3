"""JSON lines for a topic without a schema: a line is a message, or the value of one.

An object with a field ``value`` (or ``value_base64``) is a message. Its other fields are ``key`` (or ``key_base64``),
``headers``, ``timestamp``, and those of `smq consume --meta`, which are ignored. Any other field is an error. A value
is text, null (a tombstone), or any other JSON, which is stored as it is written. Every other line is itself a value; of
an object, ``key`` or the field that ``--key`` names is the key.
"""

from __future__ import annotations

import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import pyarrow as pa

from smq_storage.json_lines.fields import (
    POSITION_FIELDS,
    Headers,
    InvalidField,
    JsonObject,
    LineDecoder,
    from_base64,
    headers_of,
    lines,
    micros,
    optional_columns,
    time_of,
    to_bytes,
)

VALUE_FIELDS = ("value", "value_base64")
KEY_FIELDS = ("key", "key_base64")
MESSAGE_FIELDS = (*KEY_FIELDS, *VALUE_FIELDS, "headers", "timestamp", *POSITION_FIELDS)

_SPACE = re.compile(r"[ \t\n\r]*")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_DECODER = LineDecoder(float, _refuse)


def read_messages(block: bytes, first_line: int, key: str | None, ignore_unknown: bool = False) -> pa.Table:
    """The messages of a block of whole lines. ``key`` is the field with their keys.

    Raises SchemaMismatch with the number of the line.
    """
    columns = _Columns(key, ignore_unknown)
    lines(block, first_line, columns.add)
    return columns.table()


class _Columns:
    def __init__(self, key: str | None, ignore_unknown: bool) -> None:
        self._key = key
        self._ignore_unknown = ignore_unknown
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers | None] = []
        self.times: list[int | None] = []

    def table(self) -> pa.Table:
        columns = {"key": pa.array(self.keys, pa.binary()), "value": pa.array(self.values, pa.binary())}
        return pa.table(columns | optional_columns(self.headers, self.times))

    def add(self, line: str) -> None:
        found = _DECODER.decode(line)
        headers = at = None
        if not isinstance(found, JsonObject):
            key, value = None, _bytes_of(found, line)
            if self._key is not None:
                raise InvalidField(f"there is no field {self._key!r} to take the key from")
        elif any(name in found for name in VALUE_FIELDS):
            self._check_message(found)
            headers = headers_of(found.get("headers"))
            at = micros(time_of("timestamp", found.get("timestamp")))
            key, value = self._key_of(found, line), _either(found, line, VALUE_FIELDS)
        else:
            self._check_value(found)
            key, value = self._key_of(found, line), to_bytes(line)
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)
        self.times.append(at)

    def _check_message(self, found: JsonObject) -> None:
        found.check_names()
        unknown = [name for name in found if name not in MESSAGE_FIELDS and name != self._key]
        if unknown and not self._ignore_unknown:
            raise InvalidField(
                f"a message has no field {', '.join(unknown)}. Its fields are {', '.join(MESSAGE_FIELDS[:6])}. To "
                'store the object itself, write {"value": {…}}'
            )
        if self._key is not None and self._key not in KEY_FIELDS and any(name in found for name in KEY_FIELDS):
            raise InvalidField(f"it has two keys, in {self._key} and in key")

    def _check_value(self, found: JsonObject) -> None:
        if found and all(name in MESSAGE_FIELDS for name in found):
            raise InvalidField('the message has no value; for a tombstone, write "value": null')
        if self._key is not None and self._key == found.duplicate:
            found.check_names()

    def _key_of(self, found: JsonObject, line: str) -> bytes | None:
        if self._key is None or self._key in KEY_FIELDS:
            return _either(found, line, KEY_FIELDS)
        if self._key not in found:
            raise InvalidField(f"there is no field {self._key!r} to take the key from")
        return _field(found, line, self._key)


def _either(found: JsonObject, line: str, names: tuple[str, str]) -> bytes | None:
    """The bytes of the one of two fields that is there."""
    plain, encoded = names
    if plain in found and encoded in found:
        raise InvalidField(f"it has {plain} and {encoded}; one of them is enough")
    return from_base64(encoded, found[encoded]) if encoded in found else _field(found, line, plain)


def _field(found: JsonObject, line: str, name: str) -> bytes | None:
    value = found.get(name)
    return None if value is None else to_bytes(value if isinstance(value, str) else _as_written(line, name))


def _bytes_of(value: Any, text: str) -> bytes | None:
    return None if value is None else to_bytes(value if isinstance(value, str) else text)


def _as_written(line: str, name: str) -> str:
    """The JSON of a field of an object as it is written, because numbers would lose digits when they are parsed."""
    at = line.index("{") + 1
    while True:
        found, at = scanstring(line, _after_space(line, at) + 1)
        start = _after_space(line, _after_space(line, at) + 1)
        stop = _DECODER.end_of(line, start)
        if found == name:
            return line[start:stop]
        at = _after_space(line, stop) + 1


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()
