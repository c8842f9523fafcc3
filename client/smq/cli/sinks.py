"""How `smq consume` writes messages: text, JSON lines, or one Parquet file."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from smq.cli import words
from smq.cli.formats import Form
from smq_core.errors import InvalidRequest
from smq_storage.schemas import RESERVED


class Sink:
    """Takes the rows of batches. A context manager that ends the output. ``flushed``: what was written is out."""

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


def open_sink(form: Form, to: Path | None, meta: bool) -> Sink:
    """Raises InvalidRequest when a terminal would get Parquet, OSError when the file cannot be written."""
    if form is Form.PARQUET and to is None and sys.stdout.isatty():
        raise InvalidRequest("Parquet is not for a terminal: add --to FILE.parquet")
    # Not sys.stdout.buffer: with PYTHONUNBUFFERED that one may write a part and not say so by an error.
    stream: IO[bytes] = (
        to.open("wb") if to is not None else io.BufferedWriter(io.FileIO(sys.stdout.fileno(), "wb", closefd=False))
    )
    if form is Form.PARQUET:
        return _Parquet(stream, meta)
    return _Lines(stream, _json_line if form is Form.JSON else _text_line, meta)


class _Lines(Sink):
    def __init__(self, stream: IO[bytes], line: Callable[[dict[str, Any]], bytes], meta: bool) -> None:
        super().__init__(stream)
        self._line = line
        self._meta = meta

    def write(self, rows: pa.Table, segment: str, first_offset: int) -> None:
        where = with_place(rows, segment, first_offset) if self._meta else rows
        shown = shown_columns(where, self._meta)
        self.stream.write(b"".join(self._line(row) + b"\n" for row in shown.to_pylist()))
        self.stream.flush()


class _Parquet(Sink):
    flushed = False

    def __init__(self, stream: IO[bytes], meta: bool) -> None:
        super().__init__(stream)
        self._meta = meta
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table, segment: str, first_offset: int) -> None:
        if self._meta:
            rows = with_place(rows, segment, first_offset)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.stream, rows.schema, compression="zstd")
        self._writer.write_table(rows)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        super().close()


def with_place(rows: pa.Table, segment: str, first_offset: int) -> pa.Table:
    """The rows with where they are: ``segment`` and ``offset`` as first columns."""
    offsets = pa.array(range(first_offset, first_offset + rows.num_rows), pa.int64())
    names = pa.repeat(segment, rows.num_rows)
    return rows.add_column(0, "_offset", offsets).add_column(0, "_segment", names)


def shown_columns(rows: pa.Table, meta: bool) -> pa.Table:
    """Without what the system adds (unless ``meta``), and without headers when no message has any."""
    hidden = set() if meta else {name for name in RESERVED if name != "headers"}
    if "headers" in rows.column_names and rows["headers"].null_count == rows.num_rows:
        hidden.add("headers")
    return rows.drop_columns([name for name in rows.column_names if name in hidden])


def _json_line(row: dict[str, Any]) -> bytes:
    made: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            try:
                made[name] = value.decode()
            except UnicodeDecodeError:
                made[f"{name}_base64"] = base64.b64encode(value).decode()
        else:
            made[name] = value
    return json.dumps(made, default=_plain, ensure_ascii=False).encode()


def _text_line(row: dict[str, Any]) -> bytes:
    """The value alone; with a schema, or with ``--meta``, the columns between tabs."""
    if set(row) <= {"key", "value", "headers"} and "value" in row:
        return row["value"] or b""
    return b"\t".join(_text(value) for value in row.values())


def _text(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    if isinstance(value, list | dict):
        return json.dumps(value, default=_plain, ensure_ascii=False).encode()
    return str(_plain(value) if isinstance(value, datetime | date) else value).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return words.iso(round(value.timestamp() * 1e6)) if value.tzinfo else value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, date | Decimal):
        return str(value)
    return repr(value)
