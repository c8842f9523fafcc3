"""The inputs of ``smq publish``: Parquet, CSV, JSON lines or plain lines, from a file or stdin, table by table."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from smq.cli.files.column_matching import MESSAGE_COLUMNS
from smq.cli.files.formats import InputFormat
from smq.cli.files.json_columns import TypedLines, column_of_cells
from smq.cli.files.json_messages import read_messages
from smq.producing.encoding.exact_cast import InexactValue
from smq.producing.encoding.parquet_batches import MICROS, NANOS, read_batches
from smq_core.errors import InvalidRequest, SchemaMismatch
from smq_core.model.entities import Column
from smq_storage.chunks.column_types import arrow_type, plain_type

BATCH_ROWS = 64 * 1024
BLOCK_BYTES = 4 * 1024 * 1024


_SUFFIXES = {
    ".parquet": InputFormat.PARQUET,
    ".csv": InputFormat.CSV,
    ".json": InputFormat.JSON,
    ".jsonl": InputFormat.JSON,
    ".ndjson": InputFormat.JSON,
    ".txt": InputFormat.LINES,
    ".log": InputFormat.LINES,
}


def format_of(name: str, typed: bool) -> InputFormat:
    """Returns the format for a file name. Stdin (``-``) is JSON lines if the topic has a schema, else plain lines.

    Raises InvalidRequest if the name does not show the format.
    """
    if name == "-":
        return InputFormat.JSON if typed else InputFormat.LINES
    found = _SUFFIXES.get(Path(name).suffix.lower())
    if found is None:
        raise InvalidRequest(f"the name of {name} does not show its format; add --input parquet, csv, json or lines")
    return found


def tables(
    name: str,
    format_: InputFormat,
    columns: Sequence[Column],
    key: str | None,
    stdin: IO[bytes],
    key_delimiter: str | None = None,
) -> Iterator[pa.Table]:
    """Yields the rows of a file, or of stdin for ``-``, some ten thousand at a time; from a pipe as soon as they come.

    ``columns`` are the topic's. Without any, types are inferred, and JSON lines are what
    :mod:`smq.cli.files.json_messages` says. ``key_delimiter`` ends the key of a plain line. Raises InvalidRequest if
    the file cannot be read, SchemaMismatch if a value does not have its column's type, or a line of JSON is no message.
    """
    if name != "-" and not Path(name).is_file():
        raise InvalidRequest(f"there is no file {name}")
    with contextlib.nullcontext(stdin) if name == "-" else Path(name).open("rb") as source:
        try:
            if format_ is InputFormat.PARQUET:
                yield from _parquet(source, columns)
            elif format_ is InputFormat.CSV:
                yield from _csv(source, columns)
            elif format_ is InputFormat.JSON:
                yield from _json(source, columns, key)
            else:
                for block in _blocks(source):
                    yield _lines(block.removesuffix(b"\n").split(b"\n"), key_delimiter)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            where = "stdin" if name == "-" else name
            raise InvalidRequest(f"{where} cannot be read as {format_}: {str(error).splitlines()[0]}") from None


def _lines(lines: list[bytes], key_delimiter: str | None) -> pa.Table:
    if key_delimiter is None:
        return pa.table({"value": pa.array(lines, pa.binary())})
    parts = [line.partition(key_delimiter.encode()) for line in lines]
    keys = [before if found else None for before, found, _ in parts]
    values = [after if found else line for line, (_, found, after) in zip(lines, parts, strict=True)]
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def _parquet(source: IO[bytes], columns: Sequence[Column]) -> Iterator[pa.Table]:
    # Reading Parquet starts at the end of the file, which a pipe does not offer.
    data = source if source.seekable() else pa.BufferReader(source.read())
    file, nanos = (pq.ParquetFile(data, coerce_int96_timestamp_unit=unit) for unit in (MICROS, NANOS))
    wanted = {c.name for c in columns} | (MESSAGE_COLUMNS.keys() if columns else set())
    names = [name for name in file.schema_arrow.names if not wanted or name in wanted]
    try:
        for batch in read_batches(file, lambda: nanos, names, batch_size=BATCH_ROWS):
            yield pa.Table.from_batches([batch])
    except InexactValue as problem:
        raise SchemaMismatch(f"column {problem.column}, row {problem.row + 1:,}: {problem.reason}") from None


def _json(source: IO[bytes], columns: Sequence[Column], key: str | None) -> Iterator[pa.Table]:
    typed_lines = TypedLines(columns)
    first_line = 1
    for block in _blocks(source):
        if block.strip():
            yield typed_lines.read(block, first_line) if columns else read_messages(block, first_line, key)
        first_line += block.count(b"\n")


def _csv(source: IO[bytes], columns: Sequence[Column]) -> Iterator[pa.Table]:
    fields = [pa.field(c.name, plain_type(arrow_type(c.type))) for c in columns]
    as_text = [f for f in fields if pa.types.is_nested(f.type) or pa.types.is_decimal256(f.type)]  # Arrow reads none
    types = {f.name: pa.string() if f in as_text else f.type for f in fields}
    first_row = 1
    try:
        reader = pacsv.open_csv(
            source,
            read_options=pacsv.ReadOptions(block_size=BLOCK_BYTES),
            convert_options=pacsv.ConvertOptions(column_types=types, strings_can_be_null=True),
        )
        for batch in reader:
            table = pa.Table.from_batches([batch])
            for field in as_text:
                if (at := table.schema.get_field_index(field.name)) >= 0:
                    column = column_of_cells(table.column(at), field, first_row)
                    table = table.set_column(at, field.name, column)
            first_row += table.num_rows
            yield table
    except pa.ArrowInvalid as error:
        raise _csv_mismatch(error, source) from None


def _csv_mismatch(error: pa.ArrowInvalid, source: IO[bytes]) -> Exception:
    """Replaces the column number in Arrow's error by the column's name."""
    match = re.match(r"In CSV column #(\d+): (.*)", str(error).splitlines()[0])
    if match is None or not source.seekable():
        return error
    source.seek(0)
    header = source.readline().decode("utf-8", "replace").rstrip("\r\n").split(",")
    name = header[int(match[1])].strip('"')
    return SchemaMismatch(f"these columns do not fit the topic:\n  {name}: {match[2]}")


def _blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Yields blocks of whole lines as they arrive; the last line may lack its newline."""
    rest = b""
    read = getattr(source, "read1", source.read)
    while part := read(BLOCK_BYTES):
        whole, newline, tail = part.rpartition(b"\n")
        if newline:
            yield rest + whole + newline
            rest = tail
        else:
            rest += part
    if rest:
        yield rest
