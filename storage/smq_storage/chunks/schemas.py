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

from collections.abc import Sequence

import pyarrow as pa

from smq_core.model.entities import Column
from smq_storage.chunks.column_types import declared_type, stored_field

TIMESTAMP = pa.timestamp("us", tz="UTC")
RESERVED = ("partition", "timestamp", "appended", "headers")
# Names that no column of a topic may have, in any case: those of messages, and those that files and tools add.
RESERVED_COLUMNS = (*RESERVED, "_topic", "_segment", "_offset", "file_row_number", "_smq_file")

# Everything inside may be null. A broker does not look at rows, and a null there must not make a batch unwritable.
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def message_schema(columns: Sequence[Column] = ()) -> pa.Schema:
    """The schema of batches on the wire, without and with a topic schema."""
    return pa.schema(_fields(columns, appended=False))


def chunk_schema(columns: Sequence[Column] = ()) -> pa.Schema:
    """The schema of a chunk. Readers get the same columns :func:`~smq_storage.chunks.column_types.as_declared`."""
    return pa.schema(_fields(columns, appended=True))


def has_plain_messages(schema: pa.Schema) -> bool:
    """Whether rows of this schema are messages of a topic without a schema. No other topic may have these columns."""
    body = [field for field in schema if field.name not in RESERVED]
    return [(field.name, declared_type(field)) for field in body] == [("key", pa.binary()), ("value", pa.binary())]


def without_append_time(schema: pa.Schema) -> pa.Schema:
    """The ``message_schema`` that belongs to a ``chunk_schema``; the schema itself if it has no ``appended``."""
    at = schema.get_field_index("appended")
    return schema.remove(at) if at >= 0 else schema


def _fields(columns: Sequence[Column], appended: bool) -> list[pa.Field]:
    body = (
        [stored_field(c.name, c.type, c.nullable) for c in columns]
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
