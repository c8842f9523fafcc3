"""JSON lines for a topic with a schema: an object per line with the topic's columns.

A column of bytes is text, or base64 in ``<name>_base64``. Besides the columns an object may have ``headers``,
``timestamp``, and the fields of `smq consume --meta`, which are ignored. Any other field is an error.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from smq_core.model.entities import Column
from smq_storage.chunks.column_types import arrow_type, plain_type
from smq_storage.conversion.exact_cast import InexactValue, kind_of
from smq_storage.conversion.row_values import RowConverter
from smq_storage.json_lines.fields import (
    BASE64,
    POSITION_FIELDS,
    Headers,
    InvalidField,
    JsonObject,
    LineDecoder,
    from_base64,
    headers_of,
    lines,
    micros,
    optional_columns,
    time_of,
)
from smq_storage.json_lines.values import from_json, has_bytes

_DECODER = LineDecoder(Decimal, float)
_LINE = re.compile(rb"^[ \t\r]*\{", re.MULTILINE)
# A line that begins otherwise than an object.
_OTHER_LINE = re.compile(rb"^[ \t\r]*[^ \t\r\n{]", re.MULTILINE)
_READ_AS_TEXT = ("date", "time")


class TypedLines:
    """Reads blocks of lines: all at once with Arrow if they have only columns, else line by line."""

    def __init__(self, columns: Sequence[Column], ignore_unknown: bool = False) -> None:
        self._ignore_unknown = ignore_unknown
        self._schema = row_schema(columns)
        self._read_as = pa.schema(
            [(f.name, pa.string() if kind_of(f.type) in _READ_AS_TEXT else f.type) for f in self._schema]
        )
        self._arrow_reads_all = all(_arrow_reads(field.type) for field in self._schema)

    def read(self, block: bytes, first_line: int) -> pa.Table:
        """The rows of a block of whole lines. Raises SchemaMismatch with the number of the line."""
        # Of a value that is no object, Arrow makes a row of nulls, and of a first one it makes a crash.
        objects = _count_objects(block) if self._arrow_reads_all else None
        found = None if objects is None else self._read_at_once(block, objects)
        if found is not None:
            return found
        rows = RowTable(self._schema, self._ignore_unknown)
        lines(block, first_line, rows.add)
        return rows.table()

    def _read_at_once(self, block: bytes, objects: int) -> pa.Table | None:
        """None if some line needs, or deserves, to be looked at alone. ``objects``: how many lines begin with one."""
        try:
            found = pajson.read_json(
                io.BytesIO(block),
                read_options=pajson.ReadOptions(block_size=len(block) + 1),
                parse_options=pajson.ParseOptions(explicit_schema=self._read_as, unexpected_field_behavior="error"),
            )
            # Arrow reads no dates, and drops the zones of times. Its casts from text do neither.
            columns = [found.column(f.name).cast(f.type) for f in self._schema]
        except pa.ArrowInvalid:
            return None
        if found.num_rows != objects:
            return None  # an object on several lines, or several on one
        for field, column in zip(self._schema, columns, strict=True):
            if not field.nullable and column.null_count:
                return None
            # Arrow makes an infinity of a number that is too large.
            if pa.types.is_floating(field.type) and pc.any(pc.is_inf(column)).as_py():
                return None
        return pa.Table.from_arrays(columns, names=self._schema.names)


def row_schema(columns: Sequence[Column]) -> pa.Schema:
    """The columns of a topic, with the types by which values are checked."""
    return pa.schema([pa.field(c.name, plain_type(arrow_type(c.type)), nullable=c.nullable) for c in columns])


def _count_objects(block: bytes) -> int | None:
    """How many lines begin with an object; None if some line begins otherwise."""
    # Counting takes a fifth of the time of the patterns, which are for indented and empty lines.
    objects = block.count(b"\n{") + block.startswith(b"{")
    if objects == block.count(b"\n") + (not block.endswith(b"\n")):
        return objects
    return None if _OTHER_LINE.search(block) else len(_LINE.findall(block))


def _arrow_reads(type_: pa.DataType) -> bool:
    """Whether Arrow reads what :class:`RowTable` reads, and refuses what it refuses."""
    match kind_of(type_):
        case "list":
            return kind_of(type_.value_type) not in ("float", *_READ_AS_TEXT) and _arrow_reads(type_.value_type)
        case "struct" | "map" | "time of day":
            return False
        case "time" | "zoned time":
            return type_ in (pa.timestamp("us"), pa.timestamp("us", "UTC"))
    return not pa.types.is_decimal256(type_)


def decode_cell(text: str) -> Any:
    """The JSON of a cell of CSV. Raises InvalidField."""
    return _DECODER.decode(text)


class RowTable:
    """Rows that are collected one by one."""

    def __init__(self, schema: pa.Schema, ignore_unknown: bool = False) -> None:
        self._schema = schema
        self._ignore_unknown = ignore_unknown
        self._converter = RowConverter(schema)
        self._types = {field.name: field.type for field in schema}
        self._rows: list[tuple[object, ...]] = []
        self._headers: list[Headers | None] = []
        self._times: list[int | None] = []
        self._base64 = {
            field.name + BASE64: field.name
            for field in schema
            if has_bytes(field.type) and field.name + BASE64 not in schema.names
        }

    def table(self) -> pa.Table:
        values = zip(*self._rows, strict=True) if self._rows else [()] * len(self._schema)
        columns = {f.name: pa.array(column, f.type) for f, column in zip(self._schema, values, strict=True)}
        return pa.table(columns | optional_columns(self._headers, self._times))

    def add(self, line: str) -> None:
        """Raises InvalidField."""
        self.add_row(*self.read(line))

    def read(self, line: str) -> tuple[dict[str, object], Headers | None, int | None]:
        """The values of an object by column, its headers, and its time in microseconds since 1970.

        Raises InvalidField.
        """
        found = _DECODER.decode(line)
        if not isinstance(found, JsonObject):
            raise InvalidField("it is no JSON object with the topic's columns")
        found.check_names()
        values: dict[str, object] = {}
        headers = at = None
        for name, value in found.items():
            if name in self._types:
                values[name] = from_json(name, value, self._types[name])
            elif name in self._base64:
                if self._base64[name] in found:
                    raise InvalidField(f"it has {self._base64[name]} and {name}; one of them is enough")
                column = self._base64[name]
                values[column] = from_json(name, value, self._types[column], partial(from_base64, name))
            elif name == "headers":
                headers = headers_of(value)
            elif name == "timestamp":
                at = micros(time_of(name, value))
            elif name not in POSITION_FIELDS and not self._ignore_unknown:
                raise InvalidField(f"the topic has no column {name}; it has {', '.join(self._schema.names)}")
        return values, headers, at

    def add_row(self, values: dict[str, object], headers: Headers | None = None, at: int | None = None) -> None:
        """Raises InvalidField."""
        try:
            row, _ = self._converter.convert(values)
        except InexactValue as problem:
            raise InvalidField(problem.located()) from None
        self._rows.append(row)
        self._headers.append(headers)
        self._times.append(at)
