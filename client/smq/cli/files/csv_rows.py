"""CSV for `smq publish`: all cells are read as text, and a topic's schema says what they become.

Nothing is guessed. On a topic without a schema text stays text. With one a cell is what the same text is in JSON lines,
besides numbers and bools, which are text in CSV. A cell is null if it is not quoted and equal to ``null``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from smq.cli.files.blocks import record_blocks
from smq_core.errors import InvalidRequest, SchemaMismatch
from smq_core.model.entities import Column
from smq_storage.chunks.column_types import arrow_type, plain_type
from smq_storage.chunks.schemas import HEADERS, TIMESTAMP
from smq_storage.conversion.exact_cast import kind_of, show
from smq_storage.json_lines.columns import RowTable, decode_cell
from smq_storage.json_lines.fields import InvalidField, headers_of, micros, time_of
from smq_storage.json_lines.values import from_json

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_BOOLS = {"true": True, "false": False, "1": True, "0": False}
_CAST_BY_ARROW = ("bool", "integer", "float", "decimal", "date", "time", "zoned time")


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """``null``: what a field that is not quoted has for null. ``delimiter``: what is between fields."""

    null: str = ""
    delimiter: str = ","

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise InvalidRequest(f"--delimiter must be one ASCII character such as ';', not {self.delimiter!r}")
        if any(character in self.null for character in f'"\r\n{self.delimiter}'):
            raise InvalidRequest(f"--null must be text that needs no quotes, not {self.null!r}")


DEFAULT_DIALECT = CsvDialect()


def read_csv(source: IO[bytes], columns: Sequence[Column], key: str | None, dialect: CsvDialect) -> Iterator[pa.Table]:
    """The rows, some ten thousand at a time; from a pipe as they come. ``columns`` and ``key`` are the topic's.

    Columns that the topic does not have are text. Raises SchemaMismatch with row and column, InvalidRequest.
    """
    reader: _Reader | None = None
    for block in record_blocks(source, dialect.delimiter.encode()):
        if reader is None:
            names, block = _header(block, dialect)
            if not names:
                continue
            reader = _Reader(names, columns, key, dialect)
        if block:
            yield reader.read(block)


def _header(block: bytes, dialect: CsvDialect) -> tuple[list[str], bytes]:
    """The names of the columns, and what of the block follows them. No names if all lines are empty."""
    if block.startswith(_UTF16_MARKS):
        raise InvalidRequest("the CSV is UTF-16, and only UTF-8 is read: convert it, for example by iconv -f UTF-16")
    block = block.removeprefix(_UTF8_MARK)
    lines = io.BytesIO(block)
    try:
        records = csv.reader((line.decode() for line in lines), delimiter=dialect.delimiter, strict=True)
        names = next(filter(None, records), [])
    except csv.Error as error:
        raise InvalidRequest(f"the first line is no header of CSV: {error}") from None
    if names and not any(name.strip() for name in names):
        raise InvalidRequest("the header has no names: the first line that is not empty must name the columns")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaMismatch(f"the header has the column {', '.join(map(repr, twice))} more than once")
    return names, block[lines.tell() :]


class _Reader:
    def __init__(self, names: list[str], columns: Sequence[Column], key: str | None, dialect: CsvDialect) -> None:
        typed = {c.name: pa.field(c.name, plain_type(arrow_type(c.type))) for c in columns}
        self._names = names
        self._fields = {name: typed[name] for name in names if name in typed}
        as_bytes = {name for name, field in typed.items() if kind_of(field.type) == "bytes"}
        if not columns:
            as_bytes = {"value", key or "key"}
        self._has_message_columns = bool(columns) or "value" in names
        self._parse = pacsv.ParseOptions(
            delimiter=dialect.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=len(names) > 1,  # an empty line is the null of a single column
            invalid_row_handler=self._refuse_row,
        )
        self._convert = pacsv.ConvertOptions(
            column_types={name: pa.binary() if name in as_bytes else pa.string() for name in names},
            null_values=[dialect.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        self._rows = 0
        self._wrong_row = ""

    def read(self, block: bytes) -> pa.Table:
        """The rows of a block of whole records."""
        # Rows have numbers only with one thread.
        options = pacsv.ReadOptions(column_names=self._names, block_size=len(block) + 1, use_threads=False)
        try:
            cells = pacsv.read_csv(pa.BufferReader(block), options, self._parse, self._convert)
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(self._wrong_row or self._not_text(error)) from None
        made = {name: self._column(name, cells.column(name)) for name in self._names}
        self._rows += cells.num_rows
        return pa.table(made)

    def _refuse_row(self, row: pacsv.InvalidRow) -> str:
        found, wanted = row.actual_columns, row.expected_columns
        self._wrong_row = (
            f"row {self._rows + row.number:,} has {found} fields, and the header has {wanted}: {row.text[:60]}"
        )
        return "error"

    def _not_text(self, error: pa.ArrowInvalid) -> str:
        text = str(error).splitlines()[0]
        match = re.match(r"In CSV column #(\d+): (.*)", text)
        where = f"column {self._names[int(match[1])]}: {match[2]}" if match else text
        return f"after row {self._rows:,}: {where}; only UTF-8 is read"

    def _column(self, name: str, cells: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        if name in self._fields:
            return self._typed(cells, self._fields[name])
        if self._has_message_columns and name == "headers":
            return self._message_column(cells, name, lambda text: headers_of(decode_cell(text)), HEADERS)
        if self._has_message_columns and name == "timestamp":
            return self._message_column(cells, name, lambda text: micros(time_of(name, text)), TIMESTAMP)
        return cells

    def _message_column(
        self, cells: pa.ChunkedArray, name: str, convert: Callable[[str], object], type_: pa.DataType
    ) -> pa.Array:
        values: list[object] = []
        for row, cell in enumerate(cells.to_pylist(), self._rows + 1):
            try:
                values.append(None if cell is None else convert(cell))
            except InvalidField as problem:
                raise SchemaMismatch(f"row {row:,}: column {name}: {problem}") from None
        return pa.array(values, type_)

    def _typed(self, cells: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray | pa.Array:
        kind = kind_of(field.type)
        if kind in ("text", "bytes"):
            return cells
        found = _cast(cells, field.type) if kind in _CAST_BY_ARROW else None
        return found if found is not None else self._by_row(cells, field)

    def _by_row(self, cells: pa.ChunkedArray, field: pa.Field) -> pa.Array:
        """The column cell by cell, which takes whatever :func:`_cast` takes, and finds the row that is wrong."""
        rows = RowTable(pa.schema([field]))
        for number, cell in enumerate(cells.to_pylist(), self._rows + 1):
            try:
                rows.add_row({field.name: None if cell is None else _value(cell, field)})
            except InvalidField as problem:
                where = "" if str(problem).startswith("column") else f"column {field.name}: "
                raise SchemaMismatch(f"row {number:,}: {where}{problem}") from None
        return rows.table().column(0)


def _cast(cells: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """The cells as Arrow converts them at once; None if some cell must be looked at alone."""
    if pa.types.is_integer(type_) and pc.any(pc.match_substring_regex(cells, "[xX]")).as_py():
        return None  # Arrow takes hexadecimal numbers
    try:
        found = cells.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    # Arrow makes an infinity of a number that is too large.
    return None if pa.types.is_floating(type_) and pc.any(pc.is_inf(found)).as_py() else found


def _value(cell: str, field: pa.Field) -> object:
    """Raises InvalidField."""
    type_, text = field.type, cell.strip()
    match kind_of(type_):
        case "list" | "struct" | "map":
            return from_json(field.name, decode_cell(cell), type_)
        case "bool" if text.lower() in _BOOLS:
            return _BOOLS[text.lower()]
        case "integer" if _INTEGER.fullmatch(text):
            return int(text)
        case "float" if _NUMBER.fullmatch(text):
            return from_json(field.name, Decimal(text), type_)
        case "float" if _NOT_FINITE.fullmatch(text):
            return float(text)
        case "bool" | "integer" | "float":
            raise InvalidField(f"{show(cell)} is no {type_}")
    return from_json(field.name, text, type_)
