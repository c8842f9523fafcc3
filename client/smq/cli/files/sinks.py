"""The outputs of `smq consume`: text, JSON lines, or one Parquet file."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from smq.cli.files.formats import OutputFormat
from smq.cli.files.json_rows import iso, json_line, python_rows
from smq_core.errors import InvalidRequest
from smq_storage.chunks.schemas import RESERVED


class Sink:
    """Writes the rows of batches; a context manager that closes the output. ``flushed``: each write is flushed."""

    flushed = True

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def write(self, rows: pa.Table, segment: str, first_offset: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Repeatable."""
        self.stream.close()

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_sink(output_format: OutputFormat, to: Path | None, meta: bool) -> Sink:
    """Raises InvalidRequest if a terminal would get Parquet, OSError if the file cannot be written."""
    if output_format is OutputFormat.PARQUET and to is None and sys.stdout.isatty():
        raise InvalidRequest("Parquet cannot be printed to a terminal; add --to FILE.parquet")
    # Not sys.stdout.buffer, which with PYTHONUNBUFFERED may write only a part without raising an error.
    stream: IO[bytes] = (
        to.open("wb") if to is not None else io.BufferedWriter(io.FileIO(sys.stdout.fileno(), "wb", closefd=False))
    )
    if output_format is OutputFormat.PARQUET:
        return _ParquetSink(stream, meta)
    return _LineSink(stream, json_line if output_format is OutputFormat.JSON else _text_line, meta)


class _LineSink(Sink):
    def __init__(self, stream: IO[bytes], line: Callable[[dict[str, Any]], bytes], meta: bool) -> None:
        super().__init__(stream)
        self._line = line
        self._meta = meta

    def write(self, rows: pa.Table, segment: str, first_offset: int) -> None:
        where = with_offsets(rows, segment, first_offset) if self._meta else rows
        shown = shown_columns(where, self._meta)
        self.stream.write(b"".join(self._line(row) + b"\n" for row in python_rows(shown)))
        self.stream.flush()


class _ParquetSink(Sink):
    flushed = False

    def __init__(self, stream: IO[bytes], meta: bool) -> None:
        super().__init__(stream)
        self._meta = meta
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table, segment: str, first_offset: int) -> None:
        if self._meta:
            rows = with_offsets(rows, segment, first_offset)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.stream, rows.schema, compression="zstd")
        if not rows.schema.equals(self._writer.schema):
            raise InvalidRequest(
                "the topic's schema has changed, and a Parquet file has one schema: the file has the messages before "
                "the change. Run the command again with another file to read the messages with the new columns"
            )
        self._writer.write_table(rows)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        super().close()


def with_offsets(rows: pa.Table, segment: str, first_offset: int) -> pa.Table:
    """Adds the segment and the offset of each row as first columns."""
    offsets = pa.array(range(first_offset, first_offset + rows.num_rows), pa.int64())
    names = pa.repeat(segment, rows.num_rows)
    return rows.add_column(0, "_offset", offsets).add_column(0, "_segment", names)


def shown_columns(rows: pa.Table, meta: bool) -> pa.Table:
    """Without ``meta``, drops the system's columns, and the headers if no message has any."""
    if meta:
        return rows
    hidden = {name for name in RESERVED if name != "headers"}
    if "headers" in rows.column_names and rows["headers"].null_count == rows.num_rows:
        hidden.add("headers")
    return rows.drop_columns([name for name in rows.column_names if name in hidden])


def _text_line(row: dict[str, Any]) -> bytes:
    """Only the value; with a schema or ``--meta``, the columns separated by tabs."""
    if set(row) <= {"key", "value", "headers"} and "value" in row:
        return row["value"] or b""
    return b"\t".join(_text(value) for value in row.values())


def _text(value: Any) -> bytes:
    match value:
        case None:
            return b""
        case bytes():
            return value
        case list() | dict():
            return json.dumps(value, default=_in_json, ensure_ascii=False).encode()
        case datetime() | date():
            return iso(value).encode()
    return str(value).encode()


def _in_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return iso(value) if isinstance(value, datetime | date) else str(value)
