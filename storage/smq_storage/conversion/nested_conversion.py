"""Conversions of lists, structs and maps, value by value."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from smq_storage.conversion.exact_cast import InexactValue, kind_of, show

Convert = Callable[[object], object]


def nested_conversion(
    target: pa.DataType,
    converter: Callable[[pa.DataType], Convert],
    by_arrow: Callable[[object, pa.DataType], object],
) -> Convert:
    """The conversion to lists, dictionaries, and lists of pairs.

    ``converter`` makes the conversions of what is inside, and ``by_arrow`` converts what Python has no such type for.
    """

    def other(value: object) -> object:
        return by_arrow(value, target)

    match kind_of(target):
        case "struct":
            return _struct({field.name: _or_null(converter(field.type)) for field in target}, other)
        case "map":
            return _map(converter(target.key_type), _or_null(converter(target.item_type)), other)
    item = _or_null(converter(target.value_type))
    return lambda value: [item(it) for it in value] if _is_list(value) else other(value)  # type: ignore[attr-defined]


def _is_list(value: object) -> bool:
    """Whether it has items one by one; pandas has arrays of objects for lists inside of other values."""
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object)


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _struct(fields: Mapping[str, Convert], other: Convert) -> Convert:
    def convert(value: object) -> object:
        if not isinstance(value, Mapping):
            return other(value)
        unknown = [name for name in value if name not in fields]
        if unknown:
            raise InexactValue(f"the struct has no field {', '.join(map(str, unknown))}")
        return {name: _inside(f"field {name}", field, value.get(name)) for name, field in fields.items()}

    return convert


def _map(key: Convert, item: Convert, other: Convert) -> Convert:
    def convert(value: object) -> object:
        if not isinstance(value, Mapping) and not _is_list(value):
            return other(value)
        pairs = list(value.items() if isinstance(value, Mapping) else value)  # type: ignore[call-overload]
        for pair in pairs:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise InexactValue(f"{show(pair)} is no pair of a key and a value")
            if pair[0] is None:
                raise InexactValue("a key of a map may not be null")
        return [(_inside("a key", key, k), _inside(f"the value of {show(k)}", item, v)) for k, v in pairs]

    return convert


def _inside(where: str, convert: Convert, value: object) -> object:
    try:
        return convert(value)
    except InexactValue as problem:
        raise InexactValue(f"{where}: {problem.reason}") from None
