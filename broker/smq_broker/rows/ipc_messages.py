"""Rows that came as one message of Arrow's IPC format inside another message."""

from __future__ import annotations

import struct

import pyarrow as pa

from smq_core.errors import InvalidRequest

# The index of the header in the table of a message; of the buffers' compression in the table of a record batch, 3.
_RECORD_BATCH_HEADER = 2
_COMPRESSION = 3


def read_rows(encoded: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The rows, which refer to ``encoded``. Raises InvalidRequest if it is malformed or compressed.

    Compressed buffers may be a thousand times larger when they are read. No broker sends them.
    """
    try:
        message = pa.ipc.read_message(pa.py_buffer(encoded))
        if message.type == "record batch" and _is_compressed(message.metadata):
            raise InvalidRequest("the rows of a message are compressed: send them uncompressed")
        return pa.ipc.read_record_batch(message, schema)
    except (pa.ArrowException, OSError, EOFError, struct.error) as error:
        raise InvalidRequest(f"the rows of a message are malformed: {error}") from None


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Whether the header is a record batch with the field ``compression``, as flatbuffers store it."""
    view = memoryview(metadata)
    message = struct.unpack_from("<I", view)[0]
    field = _field(view, message, _RECORD_BATCH_HEADER)
    if field is None:
        return False
    batch = field + struct.unpack_from("<I", view, field)[0]
    return _field(view, batch, _COMPRESSION) is not None


def _field(view: memoryview, table: int, index: int) -> int | None:
    """Where a field of a table is; None if the table does not have it."""
    entries = table - struct.unpack_from("<i", view, table)[0]
    size = struct.unpack_from("<H", view, entries)[0]
    at = 4 + 2 * index
    offset = struct.unpack_from("<H", view, entries + at)[0] if at < size else 0
    return table + offset if offset else None
