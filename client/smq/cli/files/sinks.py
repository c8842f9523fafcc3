"""The outputs of `smq consume`: text, JSON lines, CSV, or one Parquet file."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from smq.cli.files.formats import OutputFormat
from smq.cli.files.line_template import LineTemplate
from smq_core.errors import InvalidRequest
from smq_storage.chunks.python_times import shown_times
from smq_storage.chunks.schemas import RESERVED, has_plain_messages
from smq_storage.json_lines.rows import json_line, python_rows
from smq_storage.json_lines.values import iso, json_object, to_json

# That of each row, or that of the first of consecutive ones.
Offsets: TypeAlias = int | pa.Array


@dataclass(frozen=True, slots=True)
class Shown:
    """What of a message is written beside its value or columns.

    ``meta``: where and when it was appended. ``headers``: its headers, in text and CSV; JSON and Parquet have them
    always. ``key_delimiter``: in text, its key and this before the value. ``template``: in text, all that it says.
    """

    meta: bool = False
    headers: bool = False
    key_delimiter: str | None = None
    template: LineTemplate | None = None


DEFAULT = Shown()


class Sink:
    """Writes the rows of batches; a context manager that closes the output. ``flushed``: each write is flushed."""

    flushed = True

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def write(self, rows: pa.Table, segment: str, offsets: Offsets) -> None:
        raise NotImplementedError

    def complete(self) -> None:
        """Makes a whole file of what was written, after which more may be written. Not if each write is flushed."""

    def close(self) -> None:
        """Repeatable."""
        self.stream.close()

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_sink(output_format: OutputFormat, to: Path | None, shown: Shown = DEFAULT) -> Sink:
    """Raises InvalidRequest if a terminal would get Parquet, OSError if the file cannot be written."""
    if output_format is OutputFormat.PARQUET and to is None and sys.stdout.isatty():
        raise InvalidRequest("Parquet cannot be printed to a terminal; add --to FILE.parquet")
    # Not sys.stdout.buffer, which with PYTHONUNBUFFERED may write only a part without raising an error.
    stream: IO[bytes] = (
        to.open("wb") if to is not None else io.BufferedWriter(io.FileIO(sys.stdout.fileno(), "wb", closefd=False))
    )
    if output_format is OutputFormat.PARQUET:
        return ParquetSink(stream, shown)
    if output_format is OutputFormat.CSV:
        return _CsvSink(stream, shown)
    if shown.template is not None:
        return _TemplateSink(stream, shown.template)
    return _LineSink(stream, _json_line if output_format is OutputFormat.JSON else _text_line(shown), shown)


class _LineSink(Sink):
    def __init__(self, stream: IO[bytes], line: Callable[[dict[str, Any], bool], bytes], shown: Shown) -> None:
        super().__init__(stream)
        self._line = line
        self._meta = shown.meta

    def write(self, rows: pa.Table, segment: str, offsets: Offsets) -> None:
        where = with_offsets(rows, segment, offsets) if self._meta else rows
        shown, plain = shown_columns(where, self._meta), not self._meta and has_plain_messages(rows.schema)
        self.stream.write(b"".join(self._line(row, plain) + b"\n" for row in python_rows(shown)))
        self.stream.flush()


class _TemplateSink(Sink):
    def __init__(self, stream: IO[bytes], template: LineTemplate) -> None:
        super().__init__(stream)
        self._template = template

    def write(self, rows: pa.Table, segment: str, offsets: Offsets) -> None:
        shown = with_offsets(rows, segment, offsets)
        self.stream.write(b"".join(self._template.line(row) for row in python_rows(shown)))
        self.stream.flush()


class _CsvSink(Sink):
    """Null is an empty field, and an empty text is quoted. Lists and mappings, and so headers, are JSON."""

    def __init__(self, stream: IO[bytes], shown: Shown) -> None:
        super().__init__(stream)
        self._shown = shown
        self._columns: list[str] = []

    def write(self, rows: pa.Table, segment: str, offsets: Offsets) -> None:
        if self._shown.meta:
            rows = with_offsets(rows, segment, offsets)
        else:
            hidden = {name for name in RESERVED if name != "headers" or not self._shown.headers}
            rows = rows.drop_columns([name for name in rows.column_names if name in hidden])
        if self._columns and rows.column_names != self._columns:
            raise InvalidRequest(
                "the topic's schema has changed, and a CSV file has the same columns on all lines: it has the messages "
                "before the change. Run the command again with another file, or without --schema own"
            )
        # Of other years Arrow writes wrong ones, or ones that nothing reads.
        rows = shown_times(rows)
        texts = pa.table({name: _csv_column(name, rows[name]) for name in rows.column_names})
        written = pa.BufferOutputStream()
        pacsv.write_csv(texts, written, pacsv.WriteOptions(include_header=not self._columns))
        self._columns = rows.column_names
        self.stream.write(written.getvalue())
        self.stream.flush()


class ParquetSink(Sink):
    """``schema``: of the file; without one, that of the first rows."""

    flushed = False

    def __init__(self, stream: IO[bytes], shown: Shown, schema: pa.Schema | None = None) -> None:
        super().__init__(stream)
        self.schema = schema
        self._meta = shown.meta
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table, segment: str, offsets: Offsets) -> None:
        if self._meta:
            rows = with_offsets(rows, segment, offsets)
        if self.schema is None:
            self.schema = rows.schema
        if not rows.schema.equals(self.schema):
            raise InvalidRequest(
                "the topic's schema has changed, and a Parquet file has one schema: the file has the messages before "
                "the change. Run the command again with another file to read the messages with the new columns"
            )
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.stream, self.schema, compression="zstd")
        self._writer.write_table(rows)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        super().close()


def with_offsets(rows: pa.Table, segment: str, offsets: Offsets) -> pa.Table:
    """Adds the segment and the offset of each row as first columns."""
    if isinstance(offsets, int):
        offsets = pa.array(range(offsets, offsets + rows.num_rows), pa.int64())
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


def _json_line(row: dict[str, Any], _plain: bool) -> bytes:
    return json_line(row)


def _text_line(shown: Shown) -> Callable[[dict[str, Any], bool], bytes]:
    """Writes only the value; with a schema or ``--meta``, the columns separated by tabs."""
    delimiter = shown.key_delimiter.encode() if shown.key_delimiter is not None else None

    def line(row: dict[str, Any], plain: bool) -> bytes:
        if not plain:
            if delimiter is not None:
                raise InvalidRequest("--key-delimiter is for messages without a schema and without --meta")
            if not shown.meta and shown.headers:
                row = {"headers": None, **row}
            return b"\t".join(_text(value) for value in row.values())
        headers = _text_headers(row.get("headers")) + b"\t" if shown.headers else b""
        key = (row["key"] or b"") + delimiter if delimiter is not None else b""
        return headers + key + (row["value"] or b"")

    return line


def _text_headers(headers: list[dict[str, Any]] | None) -> bytes:
    """As kafka-console-consumer prints them: ``name:value,name:value``."""
    return b",".join(it["key"].encode() + b":" + (it["value"] or b"") for it in headers or ())


def _csv_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """The column as CSV can have it. Raises InvalidRequest for bytes that are not text."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_nested(column.type):
        rows = python_rows(pa.table({name: column}))
        return pa.array([_in_csv(name, row[name]) for row in rows], pa.string())
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        # Of old times, whose zones had seconds, Arrow's text would lose these.
        return column.cast(pa.timestamp(column.type.unit, "UTC"))
    if pa.types.is_binary(column.type):
        try:
            return pc.cast(column, pa.string())
        except pa.ArrowInvalid:
            raise _not_text(name) from None
    return column


def _in_csv(name: str, value: Any) -> str | None:
    """A list or mapping as JSON lines have it."""
    if value is None:
        return None
    found = json_object({name: value})
    if name not in found:
        raise _not_text(name)
    return json.dumps(found[name], ensure_ascii=False, allow_nan=False)


def _not_text(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"column {name} has bytes that are not text, which CSV cannot have: use --format json or parquet"
    )


def _text(value: Any) -> bytes:
    match value:
        case None:
            return b""
        case bytes():
            return value
        case list() | dict():
            return json.dumps(to_json(value, _any_text), ensure_ascii=False).encode()
        case datetime() | date():
            return iso(value).encode()
    return str(value).encode()


def _any_text(value: bytes) -> str:
    return value.decode(errors="replace")
