"""The types of a topic's columns: by name, in Arrow, and as they travel and are stored.

A few types have no equal in Parquet, or a batch of them cannot travel without the batches before it. Such a column
travels and is stored as another type that has all of its values, and its field says what the topic declares.
:func:`as_declared` gives readers that type.

=========================  ====================
declared                   stored
=========================  ====================
dictionary<type>           the type of its values
timestamp[s]               timestamp[ms]
time32[s]                  time32[ms]
=========================  ====================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from smq_core.model.names import shown

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

# How deep types may be nested, because each level is a recursion in whatever reads and writes them.
MAX_DEPTH = 10

# The metadata of a field whose column is stored as another type than its topic declares.
_DECLARED = b"smq.type"

_SCALARS: dict[str, Callable[[], pa.DataType]] = {
    "bool": pa.bool_,
    "int8": pa.int8,
    "int16": pa.int16,
    "int32": pa.int32,
    "int64": pa.int64,
    "uint8": pa.uint8,
    "uint16": pa.uint16,
    "uint32": pa.uint32,
    "uint64": pa.uint64,
    "float32": pa.float32,
    "float64": pa.float64,
    "string": pa.string,
    "binary": pa.binary,
    "date": pa.date32,
    "date32": pa.date32,
    "time": lambda: pa.time64("us"),
    "time32[s]": lambda: pa.time32("s"),
    "time32[ms]": lambda: pa.time32("ms"),
    "time64[us]": lambda: pa.time64("us"),
    "time64[ns]": lambda: pa.time64("ns"),
}
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, ([A-Za-z0-9_+\-/:]+))?\]")
_DECIMAL = re.compile(r"decimal(128|256)\((0|[1-9][0-9]?), ?(0|[1-9][0-9]?)\)")
_NESTED = re.compile(r"(list|struct|map|dictionary)<(.+)>")
_FIELD = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,127}): ?(.+)")
_MAX_PRECISION = {"128": 38, "256": 76}

TYPE_NAMES = (
    *_SCALARS,
    "timestamp[s|ms|us|ns]",
    "timestamp[unit, zone]",
    "decimal128(precision, scale)",
    "decimal256(precision, scale)",
    "list<type>",
    "struct<name: type, ...>",
    "map<type, type>",
    "dictionary<string>",
    "dictionary<binary>",
)


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type that a column's type name declares, one of TYPE_NAMES. Raises ValueError for any other."""
    return _arrow_type(name, MAX_DEPTH)


def zones(type_: pa.DataType) -> set[str]:
    """The time zones in a type."""
    if pa.types.is_timestamp(type_):
        return {type_.tz} if type_.tz is not None else set()
    return set().union(*(zones(type_.field(number).type) for number in range(type_.num_fields)))


def stored_field(name: str, type_name: str, nullable: bool) -> pa.Field:
    """The field of a column on the wire and in chunks. Raises ValueError."""
    declared = arrow_type(type_name)
    stored = _stored_type(declared)
    metadata = None if stored == declared else {_DECLARED: type_name.encode()}
    return pa.field(name, stored, nullable, metadata)


def declared_type(field: pa.Field) -> pa.DataType:
    """The type that the topic declares for a stored column."""
    name = (field.metadata or {}).get(_DECLARED)
    return field.type if name is None else arrow_type(name.decode())


def plain_type(type_: pa.DataType) -> pa.DataType:
    """A declared type with the values of dictionaries in their place."""
    return with_leaves(type_, lambda leaf: leaf.value_type if pa.types.is_dictionary(leaf) else leaf)


def with_leaves(type_: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with other types in the place of those inside that have no types inside themselves."""
    if pa.types.is_list(type_):
        return pa.list_(with_leaves(type_.value_type, replace))
    if pa.types.is_map(type_):
        return pa.map_(with_leaves(type_.key_type, replace), with_leaves(type_.item_type, replace))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, with_leaves(f.type, replace), f.nullable) for f in type_])
    return replace(type_)


def as_declared(rows: Rows) -> Rows:
    """The rows with the types that the topic declares. Copies only columns that are stored as another type."""
    schema = rows.schema
    if not any(_DECLARED in (field.metadata or ()) for field in schema):
        return rows
    fields = [pa.field(f.name, declared_type(f), f.nullable) for f in schema]
    columns = [column.cast(field.type) for column, field in zip(rows.columns, fields, strict=True)]
    return type(rows).from_arrays(columns, schema=pa.schema(fields))


def _stored_type(type_: pa.DataType) -> pa.DataType:
    def stored(leaf: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(leaf) and leaf.unit == "s":
            return pa.timestamp("ms", leaf.tz)
        return pa.time32("ms") if leaf == pa.time32("s") else leaf

    return with_leaves(plain_type(type_), stored)


def _arrow_type(name: str, depth: int) -> pa.DataType:
    if scalar := _SCALARS.get(name):
        return scalar()
    if match := _TIMESTAMP.fullmatch(name):
        return pa.timestamp(match[1], match[2])
    if match := _DECIMAL.fullmatch(name):
        return _decimal(name, match[1], int(match[2]), int(match[3]))
    match = _NESTED.fullmatch(name)
    parts = _parts(match[2]) if match else None
    if match is None or parts is None:
        raise ValueError(f"there is no type {shown(name)}; the types are {', '.join(TYPE_NAMES)}")
    if depth == 0:
        raise ValueError(f"the type is nested deeper than {MAX_DEPTH} levels")
    match match[1], parts:
        case "list", [item]:
            return pa.list_(_arrow_type(item, depth - 1))
        case "map", [key, item]:
            return pa.map_(_key_type(key), _arrow_type(item, depth - 1))
        case "dictionary", ["string" | "binary" as value]:
            return pa.dictionary(pa.int32(), _arrow_type(value, depth - 1))
        case "struct", _:
            return _struct(name, parts, depth - 1)
    raise ValueError(f"{shown(name)}: write list<type>, map<type, type>, dictionary<string> or dictionary<binary>")


def _decimal(name: str, bits: str, precision: int, scale: int) -> pa.DataType:
    most = _MAX_PRECISION[bits]
    if not (1 <= precision <= most and scale <= precision):
        raise ValueError(f"{shown(name)}: the precision must be 1 to {most}, the scale at most the precision")
    return pa.decimal128(precision, scale) if bits == "128" else pa.decimal256(precision, scale)


def _key_type(name: str) -> pa.DataType:
    if "<" in name:
        raise ValueError(f"{shown(name)} cannot be the key of a map: use text, bytes, a number or a time")
    return _arrow_type(name, 0)


def _struct(name: str, parts: list[str], depth: int) -> pa.DataType:
    fields = []
    for part in parts:
        match = _FIELD.fullmatch(part)
        if match is None:
            raise ValueError(
                f"{shown(name)}: a struct has fields such as struct<name: type, name: type>, not {shown(part)}"
            )
        fields.append(pa.field(match[1], _arrow_type(match[2], depth)))
    if len({field.name.lower() for field in fields}) < len(fields):  # Spark and others take such names for one
        raise ValueError(f"{shown(name)}: each field of a struct needs a name of its own, not only in another case")
    return pa.struct(fields)


def _parts(inner: str) -> list[str] | None:
    """What is between the commas that are in no brackets; None if the brackets do not match."""
    parts, start, depth = [], 0, 0
    for at, character in enumerate(inner):
        depth += (character in "<([") - (character in ">)]")
        if depth < 0:
            return None
        if character == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    return [part.removeprefix(" ") for part in (*parts, inner[start:])] if depth == 0 else None
