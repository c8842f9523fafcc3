"""The inputs of ``smq publish``: Parquet, CSV, JSON lines or plain lines, from a file or stdin, table by table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from smq.cli.files.blocks import line_blocks
from smq.cli.files.column_matching import MESSAGE_COLUMNS
from smq.cli.files.compression import refuse_compressed_name
from smq.cli.files.csv_rows import DEFAULT_DIALECT, CsvDialect, read_csv
from smq.cli.files.formats import InputFormat
from smq.producing.encoding.parquet_batches import MICROS, NANOS, read_batches
from smq_core.errors import InvalidRequest, SchemaMismatch
from smq_core.model.entities import Column
from smq_storage.conversion.exact_cast import InexactValue
from smq_storage.json_lines.columns import TypedLines
from smq_storage.json_lines.messages import read_messages

BATCH_ROWS = 64 * 1024


_SUFFIXES = {
    ".parquet": InputFormat.PARQUET,
    ".csv": InputFormat.CSV,
    ".tsv": InputFormat.CSV,
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
    suffix = Path(name).suffix.lower()
    refuse_compressed_name(name, _SUFFIXES.get(Path(Path(name).stem).suffix.lower(), InputFormat.CSV))
    found = _SUFFIXES.get(suffix)
    if found is None:
        raise InvalidRequest(f"the name of {name} does not show its format; add --input parquet, csv, json or lines")
    return found


def delimiter_of(name: str) -> str:
    """What is between the fields of a CSV file of this name."""
    return "\t" if Path(name).suffix.lower() == ".tsv" else ","


def can_be_read_twice(name: str) -> bool:
    """Whether an input is a file, and no pipe."""
    return name != "-" and Path(name).is_file()


@dataclass(frozen=True, slots=True)
class Reading:
    """How an input is read.

    ``key`` names the field with the keys, ``key_delimiter`` ends the key of a plain line. ``ignore_unknown``: fields
    that the topic does not have are left out.
    """

    key: str | None = None
    key_delimiter: str | None = None
    dialect: CsvDialect = DEFAULT_DIALECT
    ignore_unknown: bool = False


DEFAULT = Reading()


def tables(
    name: str, format_: InputFormat, columns: Sequence[Column], stdin: IO[bytes], reading: Reading = DEFAULT
) -> Iterator[pa.Table]:
    """Yields the rows of a file, or of stdin for ``-``, some ten thousand at a time; from a pipe as soon as they come.

    ``columns`` are the topic's. Without any, CSV is text, and JSON lines are what
    :mod:`smq_storage.json_lines.messages` says. Raises InvalidRequest if the file cannot be read, SchemaMismatch if a
    value does not have its column's type, or a line of JSON is no message.
    """
    if name != "-" and not Path(name).exists():
        raise InvalidRequest(f"there is no file {name}")
    with contextlib.nullcontext(stdin) if name == "-" else Path(name).open("rb") as source:
        try:
            if format_ is InputFormat.PARQUET:
                yield from _parquet(source, columns if reading.ignore_unknown else ())
            elif format_ is InputFormat.CSV:
                yield from read_csv(source, columns, reading.key, reading.dialect)
            elif format_ is InputFormat.JSON:
                yield from _json(source, columns, reading)
            else:
                for block in line_blocks(source):
                    yield _lines(block.removesuffix(b"\n").split(b"\n"), reading.key_delimiter)
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
    file = pq.ParquetFile(data, coerce_int96_timestamp_unit=MICROS)
    wanted = {c.name for c in columns} | (MESSAGE_COLUMNS.keys() if columns else set())  # without any: all
    names = [name for name in file.schema_arrow.names if not wanted or name in wanted]
    try:
        nanos = partial(pq.ParquetFile, data, coerce_int96_timestamp_unit=NANOS)
        for batch in read_batches(file, nanos, names, batch_size=BATCH_ROWS):
            yield pa.Table.from_batches([batch])
    except InexactValue as problem:
        raise SchemaMismatch(f"column {problem.column}, row {problem.row + 1:,}: {problem.reason}") from None


def _json(source: IO[bytes], columns: Sequence[Column], reading: Reading) -> Iterator[pa.Table]:
    typed_lines = TypedLines(columns, reading.ignore_unknown)
    first_line = 1
    for block in line_blocks(source):
        if block.strip():
            yield (
                typed_lines.read(block, first_line)
                if columns
                else read_messages(block, first_line, reading.key, reading.ignore_unknown)
            )
        first_line += block.count(b"\n")
