"""The project's dataclasses as JSON. Unknown fields are ignored, so that neighbouring versions can read each other."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


_adapters: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    # Building one takes milliseconds. It does no harm if two threads build the same one.
    adapter = _adapters.get(kind)
    if adapter is None:
        adapter = _adapters[kind] = TypeAdapter(kind)
    return adapter


def to_json(value: object, *, indent: int | None = None) -> bytes:
    return _adapter(type(value)).dump_json(value, indent=indent)


def from_json(kind: type[T], data: bytes | memoryview | str) -> T:
    """Raises ValueError if the JSON is damaged or lacks a field."""
    value: T = _adapter(kind).validate_json(data if isinstance(data, (bytes, str)) else bytes(data))
    return value
