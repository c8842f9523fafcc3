"""JSON lines for a topic with a schema: an object per line with the topic's columns.

A column of bytes is text, or base64 in ``<name>_base64``. Besides the columns an object may have ``headers``,
``timestamp``, and the fields of `smq consume --meta`, which are ignored. Any other field is an error.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from smq.cli.files.json_fields import (
    POSITION_FIELDS,
    Headers,
    InvalidField,
    JsonObject,
    LineDecoder,
    from_base64,
    headers_of,
    in_utc,
    lines,
    micros,
    optional_columns,
    time_from_text,
    time_of,
    to_bytes,
)
from smq.cli.files.json_rows import BASE64
from smq.producing.encoding.exact_cast import InexactValue, kind_of
from smq.producing.encoding.row_values import RowConverter
from smq_core.model.entities import Column
from smq_storage.chunks.schemas import arrow_type

_DECODER = LineDecoder(Decimal, float)
_READ_AS_TEXT = ("date", "time")
_MAX_INTEGER_DIGITS = 20
_SPECIAL_FLOATS = ("NaN", "Infinity", "-Infinity")


class TypedLines:
    """Reads blocks of lines: all at once with Arrow if they have only columns, else line by line."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._schema = pa.schema([pa.field(c.name, arrow_type(c.type), nullable=c.nullable) for c in columns])
        self._read_as = pa.schema(
            [(f.name, pa.string() if kind_of(f.type) in _READ_AS_TEXT else f.type) for f in self._schema]
        )
        self._arrow_reads_all = all(_arrow_reads(field.type) for field in self._schema)

    def read(self, block: bytes, first_line: int) -> pa.Table:
        """The rows of a block of whole lines. Raises SchemaMismatch with the number of the line."""
        found = self._read_at_once(block) if self._arrow_reads_all else None
        if found is not None:
            return found
        rows = _Rows(self._schema)
        lines(block, first_line, rows.add)
        return rows.table()

    def _read_at_once(self, block: bytes) -> pa.Table | None:
        """None if some line needs, or deserves, to be looked at alone."""
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
        for field, column in zip(self._schema, columns, strict=True):
            if not field.nullable and column.null_count:
                return None
            # Arrow makes an infinity of a number that is too large.
            if pa.types.is_floating(field.type) and pc.any(pc.is_inf(column)).as_py():
                return None
        return pa.Table.from_arrays(columns, names=self._schema.names)


def _arrow_reads(type_: pa.DataType) -> bool:
    """Whether Arrow reads what :class:`_Rows` reads, and refuses what it refuses."""
    if pa.types.is_list(type_):
        return kind_of(type_.value_type) not in ("float", *_READ_AS_TEXT) and _arrow_reads(type_.value_type)
    return True


class _Rows:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._converter = RowConverter(schema)
        self._types = {field.name: (field.type, kind_of(field.type)) for field in schema}
        self._rows: list[tuple[object, ...]] = []
        self._headers: list[Headers | None] = []
        self._times: list[int | None] = []
        self._base64 = {
            field.name + BASE64: field.name
            for field in schema
            if kind_of(_item_type(field.type)) == "bytes" and field.name + BASE64 not in schema.names
        }

    def table(self) -> pa.Table:
        values = zip(*self._rows, strict=True) if self._rows else [()] * len(self._schema)
        columns = {f.name: pa.array(column, f.type) for f, column in zip(self._schema, values, strict=True)}
        return pa.table(columns | optional_columns(self._headers, self._times))

    def add(self, line: str) -> None:
        found = _DECODER.decode(line)
        if not isinstance(found, JsonObject):
            raise InvalidField("it is no JSON object with the topic's columns")
        found.check_names()
        values: dict[str, object] = {}
        headers = at = None
        for name, value in found.items():
            if name in self._types:
                values[name] = _from_json(name, value, *self._types[name])
            elif name in self._base64:
                if self._base64[name] in found:
                    raise InvalidField(f"it has {self._base64[name]} and {name}; one of them is enough")
                values[self._base64[name]] = _from_base64(name, value)
            elif name == "headers":
                headers = headers_of(value)
            elif name == "timestamp":
                at = micros(time_of(name, value))
            elif name not in POSITION_FIELDS:
                raise InvalidField(f"the topic has no column {name}; it has {', '.join(self._schema.names)}")
        try:
            row, _ = self._converter.convert(values)
        except InexactValue as problem:
            raise InvalidField(problem.located()) from None
        self._rows.append(row)
        self._headers.append(headers)
        self._times.append(at)


def _item_type(type_: pa.DataType) -> pa.DataType:
    return _item_type(type_.value_type) if pa.types.is_list(type_) else type_


def _from_base64(name: str, value: Any) -> object:
    return [_from_base64(name, item) for item in value] if isinstance(value, list) else from_base64(name, value)


def _from_json(name: str, value: Any, target: pa.DataType, kind: str) -> object:
    """The value as Python has it. What JSON has no type for is text, or a number that is read as the column's type."""
    match kind:
        case "list" if isinstance(value, list):
            item, item_kind = target.value_type, kind_of(target.value_type)
            return [_from_json(name, it, item, item_kind) for it in value]
        case "float" if isinstance(value, int | Decimal) and not isinstance(value, bool):
            return _nearest_float(name, value, target)
        case "float" if value in _SPECIAL_FLOATS:
            return float(value)
        case "decimal" if isinstance(value, str):
            return _decimal(name, value)
        case "bytes" if isinstance(value, str):
            return to_bytes(value)
        case "date" if isinstance(value, str):
            return _date(name, value)
        case "time" if value is not None:
            return time_from_text(name, value)
        case "zoned time" if value is not None:
            return in_utc(time_from_text(name, value))
        case "decimal":
            return value
        case "integer" if isinstance(value, Decimal) and value == value.to_integral_value():
            return int(value) if value.adjusted() < _MAX_INTEGER_DIGITS else value
    return float(value) if isinstance(value, Decimal) else value


def _nearest_float(name: str, value: int | Decimal, target: pa.DataType) -> float:
    try:
        with np.errstate(over="raise"):
            found = float(np.float32(float(value))) if target == pa.float32() else float(value)
        if not np.isinf(found):
            return found
    except (OverflowError, FloatingPointError):
        pass
    raise InvalidField(f"column {name}: {value} is out of the range of {target}")


def _decimal(name: str, value: str) -> Decimal:
    try:
        return Decimal(value)
    except ArithmeticError:
        raise InvalidField(f"column {name}: {value!r} is no decimal number") from None


def _date(name: str, value: str) -> date:
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise InvalidField(f"column {name}: {value!r} is no date such as 2024-05-01") from None
