"""Converts errors to protobuf and back. They may quote what a stranger sent, so they are bounded on the wire."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any, get_args, get_origin, get_type_hints

from smq_core.errors import SmqError, Unavailable, Unreachable, error_class
from smq_core.model.names import bounded
from smq_proto.v1 import data_pb2 as pb

# The longest text of a field of an error on the wire.
MAX_FIELD_CHARACTERS = 300
# The most values of such a field.
MAX_FIELD_VALUES = 20


def error_to_pb(error: SmqError) -> pb.Error:
    if isinstance(error, Unreachable):
        # The receiver reached this process. It must not conclude that this process did not answer.
        error = Unavailable(error.message)
    values = {name: _bounded_value(value) for name, value in error.field_values().items()}
    return pb.Error(code=error.code, message=bounded(error.message), details=json.dumps(values) if values else "")


def _bounded_value(value: object) -> object:
    """A field of an error, which may quote what a stranger sent. Whatever the receiver acts on is shorter."""
    if isinstance(value, str):
        return bounded(value, MAX_FIELD_CHARACTERS)
    if isinstance(value, (list, tuple)):
        return [_bounded_value(it) for it in value[:MAX_FIELD_VALUES]]
    return value


def error_from_pb(message: pb.Error) -> SmqError:
    """The error with its declared fields; fields that this version does not declare are dropped.

    An error that lacks a required field becomes its nearest base class that needs none.
    """
    cls = error_class(message.code)
    try:
        given = json.loads(message.details or "{}")
    except (ValueError, RecursionError):
        given = None
    while cls is not SmqError and isinstance(given, dict):
        values = _declared_values(cls, given)
        if values is not None:
            return cls(message.message, **values)
        cls = cls.__base__
    return SmqError(message.message)


def _declared_values(cls: type[SmqError], given: dict[str, Any]) -> dict[str, Any] | None:
    """The values of the error's fields; None if one is missing or of another type.

    No model of pydantic does this: a client's first error comes with the first sealed segment, when its writers wait,
    and to make the first model takes a tenth of a second.
    """
    values = {}
    for field in dataclasses.fields(cls):
        if field.name == "message":
            continue
        if field.name in given:
            value = given[field.name]
            if type(value) not in _json_types(cls)[field.name]:
                return None
            if isinstance(value, list):
                if not all(isinstance(it, str) for it in value):
                    return None
                value = tuple(value)
            values[field.name] = value
        elif field.default is dataclasses.MISSING:
            return None
    return values


@functools.cache
def _json_types(cls: type[SmqError]) -> dict[str, tuple[type, ...]]:
    """The types that each field's value may have in JSON. Fields are scalars, or tuples of text."""
    found: dict[str, tuple[type, ...]] = {}
    for name, hint in get_type_hints(cls).items():
        if get_origin(hint) is tuple:
            found[name] = (list,)
        else:
            found[name] = get_args(hint) or (hint,)
    return found
