"""kio's types of requests and responses, and entities of any version from the same values.

kio has one type for each message and version. A handler that answers all versions of its API names the values of all
versions, and :func:`build` takes those that a version has.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from smq_broker.kafka.protocol.messages import ProtocolError

# Gives the entity, and its size in the buffer.
Reader: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]


def api_name(api_key: int) -> str:
    """As kio calls it: ``list_offsets``. Raises KeyError if it has none."""
    return api_key_map[api_key]


def read(reader: Reader, view: memoryview, start: int) -> Any:
    """The entity at ``start`` of a read-only view. Raises ProtocolError if there is none.

    Unlike Kafka, kio refuses tagged fields that are newer than it, and takes null for every array.
    """
    try:
        entity = reader(view, start)[0]
    except Exception as error:
        raise ProtocolError("malformed", f"the request cannot be decoded: {error}") from None
    _check_arrays(entity)
    return entity


def _check_arrays(entity: Any) -> None:
    entity_type: Any = type(entity)
    for name, may_be_null, is_checked in _arrays_in(entity_type):
        value = getattr(entity, name)
        if value is None:
            if not may_be_null:
                raise ProtocolError("malformed", f"the request cannot be decoded: {name} is null")
        elif is_checked:
            for it in value:
                _check_arrays(it)


@cache
def _arrays_in(entity_type: Any) -> Sequence[tuple[str, bool, bool]]:
    """The names of its arrays, whether each may be null, and whether its elements are entities that have arrays."""
    nested: Mapping[str, Any] = _nested_types(entity_type)
    return tuple(
        (field.name, type(None) in get_args(field.type), element is not None and bool(_arrays_in(element)))
        for field in dataclasses.fields(entity_type)
        if tuple in (get_origin(field.type), *map(get_origin, get_args(field.type)))
        for element in (nested[field.name],)
    )


def encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@cache
def request_reader(api_key: int, version: int) -> Reader:
    return entity_reader(load_request_schema(api_key, version))


@cache
def has_flexible_request_header(api_key: int, version: int) -> bool:
    """Whether tagged fields follow the client's id."""
    return load_request_schema(api_key, version).__header_schema__.__flexible__


@cache
def has_flexible_response_header(api_key: int, version: int) -> bool:
    """Whether tagged fields follow the correlation id."""
    return load_response_schema(api_key, version).__header_schema__.__flexible__


def build_response(api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """The response of this version from the values of all versions."""
    return build(load_response_schema(api_key, version), values)


def build(entity_type: Any, values: Mapping[str, Any]) -> Any:
    """The entity from the values that it has fields for. Values of nested entities are mappings, or sequences of them.

    A field without a value gets its default; raises TypeError if it has none. Other values are left out, because
    another version may have fields for them.
    """
    return entity_type(
        **{
            name: _value(nested, values[name]) if nested is not None else values[name]
            for name, nested in _nested_types(entity_type).items()
            if name in values
        }
    )


def _value(nested: type[Any], value: Any) -> Any:
    if isinstance(value, Mapping):
        return build(nested, value)
    if isinstance(value, Sequence):
        return tuple(_value(nested, it) for it in value)
    return value


@cache
def _nested_types(entity_type: Any) -> Mapping[str, type[Any] | None]:
    """The names of its fields, with the type of their entities if they have some."""
    return {field.name: _entity_in(field.type) for field in dataclasses.fields(entity_type)}


def _entity_in(annotation: Any) -> type[Any] | None:
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return annotation
    return next((found for it in get_args(annotation) if (found := _entity_in(it)) is not None), None)
