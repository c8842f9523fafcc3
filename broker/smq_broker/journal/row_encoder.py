"""Encodes rows as Arrow IPC messages whose parts are the rows' own buffers, where a copy would cost more."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa

from smq_broker.journal.record_format import Bytes

# Copying fewer bytes is faster than passing on their buffers one by one.
COPY_BELOW_BYTES = 128 * 1024


class RowEncoder:
    """Not safe from several threads."""

    def __init__(self) -> None:
        self._parts = _Parts()
        self._writer: Any = None
        self._schema: pa.Schema | None = None

    def encode(self, rows: pa.RecordBatch) -> list[Bytes]:
        """One message, which ``pa.ipc.read_record_batch`` reads. Valid as long as the rows are not changed."""
        # The exact size costs more than the copy of a small message, so it is used only for slices of large blocks.
        if rows.get_total_buffer_size() < COPY_BELOW_BYTES or rows.nbytes < COPY_BELOW_BYTES:
            return [rows.serialize()]
        if self._schema is None or not self._schema.equals(rows.schema):
            self._schema = rows.schema
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._parts, mode="w"), rows.schema)
            self._writer.write_batch(rows.slice(0, 0))  # the schema's message comes with the first batch
        self._parts.taken()
        self._writer.write_batch(rows)
        return self._parts.taken()


class _Parts(io.BytesIO):
    """A file object that keeps the parts that are written. Arrow passes large buffers without copying them."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[Bytes] = []

    def write(self, part: Bytes) -> int:  # type: ignore[override]
        self._parts.append(part)
        return part.size if isinstance(part, pa.Buffer) else len(part)

    def taken(self) -> list[Bytes]:
        found, self._parts = self._parts, []
        return found
