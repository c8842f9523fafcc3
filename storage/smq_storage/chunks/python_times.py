"""Times and dates that Python has, and what stands for others.

Arrow has times of 300,000 years; Python has those of the years 1 to 9999, in UTC and in their own zone. Producers
refuse the others, because most programs could not read them. A log may have some all the same, written by other
clients. Readers then get the nearest time that Python has, and never an error.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

log = logging.getLogger(__name__)

NOT_IN_PYTHON = "Python has only the years 1 to 9999, and times of day below 24:00"

_EPOCH = datetime(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
MIN_MICROS = (datetime.min - _EPOCH) // _MICRO
MAX_MICROS = (datetime.max - _EPOCH) // _MICRO
_DAY_MICROS = 86_400_000_000
_MICROS_OF_UNIT = {"s": 1_000_000, "ms": 1000, "us": 1}
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def time_of_micros(at: int) -> datetime:
    """Microseconds since 1970 as a time in UTC; the nearest one that Python has."""
    return (_EPOCH + min(max(at, MIN_MICROS), MAX_MICROS) * _MICRO).replace(tzinfo=UTC)


@cache
def has_times(type_: pa.DataType) -> bool:
    """Whether values of a type are times or dates, or have some inside."""
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_time(type_):
        return True
    return any(has_times(type_.field(number).type) for number in range(type_.num_fields))


def all_in_python(times: pa.Array) -> bool:
    """Whether Python has all values of an array of times or dates."""
    low, high = _bounds(times.type)
    numbers = _numbers(times)
    found = pc.min_max(numbers)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is None:
        return True
    if least < low or most > high:
        return False
    if not _has_offset(times.type):
        return True
    day = 86_400 * _PER_SECOND[times.type.unit]
    if low + day <= least and most <= high - day:
        return True
    near = pc.filter(times, pc.or_(pc.less(numbers, low + day), pc.greater(numbers, high - day)))
    return all(_has_zoned(value) for value in pc.unique(near))


def in_python(table: pa.Table) -> pa.Table:
    """The table with the nearest times that Python has in the place of those that it does not have.

    Times with nanoseconds, which only pandas has, lose them if pandas is not installed.
    """
    for number, field in enumerate(table.schema):
        if has_times(field.type):
            column = pa.chunked_array([_nearest(chunk) for chunk in table.column(number).chunks], field.type)
            table = table.set_column(number, field.with_type(column.type), column)
    return table


def shown_times(table: pa.Table) -> pa.Table:
    """The table with the nearest times that Python has in columns of times, as :func:`python_values` shows them."""
    others = [
        field.name
        for field, column in zip(table.schema, table.columns, strict=True)
        if has_times(field.type) and not field.type.num_fields and not all(map(all_in_python, column.chunks))
    ]
    if not others:
        return table
    _warn_once()
    for name in others:
        number = table.column_names.index(name)
        table = table.set_column(number, table.schema.field(number), in_python(table.select([name])).column(0))
    return table


def python_values(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as Python objects, with the nearest times that Python has."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError):
        _warn_once()
        rows = in_python(table).to_pylist()
    return rows


@cache
def _warn_once() -> None:
    log.warning(
        "messages have times that Python does not have; they are shown as the nearest ones. Read the table of a batch, "
        "or the Parquet files, to get them exactly"
    )


def _bounds(type_: pa.DataType) -> tuple[int, int]:
    if pa.types.is_time(type_):
        return 0, 86_400 * _PER_SECOND[type_.unit] - 1
    if pa.types.is_date(type_):
        days = MIN_MICROS // _DAY_MICROS, MAX_MICROS // _DAY_MICROS
        return days if pa.types.is_date32(type_) else (days[0] * 86_400_000, days[1] * 86_400_000)
    if type_.unit == "ns":  # all of them are in the years 1677 to 2262
        return -(1 << 63), (1 << 63) - 1
    micros = _MICROS_OF_UNIT[type_.unit]
    return -(-MIN_MICROS // micros), MAX_MICROS // micros


def _numbers(times: pa.Array) -> pa.Array:
    return times.view(pa.int32() if times.type.bit_width == 32 else pa.int64())


def _has_offset(type_: pa.DataType) -> bool:
    """Whether a time of the type in its zone may be in another year than in UTC, near the bounds."""
    return pa.types.is_timestamp(type_) and type_.unit != "ns" and type_.tz not in (None, "UTC", "Etc/UTC")


def _has_zoned(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except (OverflowError, ValueError):
        return False
    return True


def _nearest(array: pa.Array) -> pa.Array:
    type_ = array.type
    if not has_times(type_):
        return array
    if pa.types.is_struct(type_):
        made = [_nearest(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(made, fields=list(type_), mask=array.is_null())
    if pa.types.is_map(type_):
        keys, items = (_nearest(_slice_of(array, child)) for child in (array.keys, array.items))
        return pa.MapArray.from_arrays(_offsets(array), keys, items, type=type_, mask=array.is_null())
    if pa.types.is_list(type_):
        items = _nearest(_slice_of(array, array.values))
        return pa.ListArray.from_arrays(_offsets(array), items, type=type_, mask=array.is_null())
    numbers = _numbers(array)
    if pa.types.is_timestamp(type_) and type_.unit == "ns":
        has_nanoseconds = find_spec("pandas") is not None
        return array if has_nanoseconds else pc.multiply(pc.divide(numbers, 1000), 1000).view(type_)
    low, high = _bounds(type_)
    if _has_offset(type_):
        day = 86_400 * _PER_SECOND[type_.unit]
        kept = pa.array([_has_zoned(value) for value in array])
        return pc.if_else(kept, numbers, _clamped(numbers, low + day, high - day)).view(type_)
    return _clamped(numbers, low, high).view(type_)


def _clamped(numbers: pa.Array, low: int, high: int) -> pa.Array:
    """Nulls stay null."""
    least = pa.scalar(low, numbers.type)
    above = pc.max_element_wise(numbers, least, skip_nulls=False)
    return pc.min_element_wise(above, pa.scalar(high, numbers.type), skip_nulls=False)


def _slice_of(array: pa.Array, child: pa.Array) -> pa.Array:
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return child.slice(first, last - first)


def _offsets(array: pa.Array) -> pa.Array:
    offsets = array.offsets.to_numpy()
    return pa.array((offsets - offsets[0]).astype(np.int32))
