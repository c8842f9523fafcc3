"""The columns of messages, on the wire from producers and in chunks.

========  =====================================================================================================
wire      ``partition int32, timestamp timestamp[us, UTC], key binary?, value binary?,
          headers list<struct<key string, value binary>>?`` — the typed columns of a topic schema replace
          ``key`` and ``value`` (``spec.key`` names one of them)
chunk     the same with ``appended timestamp[us, UTC]`` after ``timestamp``
========  =====================================================================================================

``?`` marks what may be null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa

from smq_core.model.entities import Column

TIMESTAMP = pa.timestamp("us", tz="UTC")
RESERVED = ("partition", "timestamp", "appended", "headers")
# Everything inside may be null. A broker does not look at rows, and a null there must not make a batch unwritable.
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

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
    "date32": pa.date32,
    "timestamp[us, UTC]": lambda: TIMESTAMP,
    "timestamp[us]": lambda: pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal128\((0|[1-9][0-9]?), ?(0|[1-9][0-9]?)\)")
_LIST = re.compile(r"list<(.+)>")

TYPE_NAMES = (*_SCALARS, "decimal128(precision, scale)", "list<type>")


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a column's type name, one of TYPE_NAMES. Raises ValueError for any other."""
    if scalar := _SCALARS.get(name):
        return scalar()
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1]), int(match[2])
        if not (1 <= precision <= 38 and scale <= precision):
            raise ValueError(f"{name}: the precision must be 1 to 38, the scale at most the precision")
        return pa.decimal128(precision, scale)
    if match := _LIST.fullmatch(name):
        return pa.list_(arrow_type(match[1]))
    raise ValueError(f"there is no type {name!r}; the types are {', '.join(TYPE_NAMES)}")


def message_schema(columns: Sequence[Column] = ()) -> pa.Schema:
    """The schema of batches on the wire, without and with a topic schema."""
    return pa.schema(_fields(columns, appended=False))


def chunk_schema(columns: Sequence[Column] = ()) -> pa.Schema:
    """The schema of a chunk, and of what readers get."""
    return pa.schema(_fields(columns, appended=True))


def without_append_time(schema: pa.Schema) -> pa.Schema:
    """The ``message_schema`` that belongs to a ``chunk_schema``; the schema itself if it has no ``appended``."""
    at = schema.get_field_index("appended")
    return schema.remove(at) if at >= 0 else schema


def _fields(columns: Sequence[Column], appended: bool) -> list[pa.Field]:
    body = (
        [pa.field(c.name, arrow_type(c.type), nullable=c.nullable) for c in columns]
        if columns
        else [pa.field("key", pa.binary()), pa.field("value", pa.binary())]
    )
    return [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("timestamp", TIMESTAMP, nullable=False),
        *([pa.field("appended", TIMESTAMP, nullable=False)] if appended else []),
        *body,
        pa.field("headers", HEADERS),
    ]
