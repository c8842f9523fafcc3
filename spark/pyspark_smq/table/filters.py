"""What a read wants, as a condition for Spark's rows."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_smq.planning.wanted import Key, TimeBounds, Wanted

if TYPE_CHECKING:
    from pyspark.sql import Column


def filtered_columns(wanted: Wanted, key: str | None) -> list[str]:
    """The columns that the condition looks at. ``key`` names the key column."""
    return [
        *(["appended"] if wanted.appended.is_bounded else []),
        *(["timestamp"] if wanted.timestamp.is_bounded else []),
        *([key] if key is not None and wanted.key.is_bounded else []),
    ]


def row_filter(wanted: Wanted, key: str | None, key_type: pa.DataType | None) -> Column | None:
    """The condition, or None if all messages are wanted."""
    from pyspark.sql import functions as F

    times = [*_time_conditions("appended", wanted.appended), *_time_conditions("timestamp", wanted.timestamp)]
    conditions = [F.expr(" AND ".join(times))] if times else []
    if key is not None and key_type is not None:
        if wanted.key.low is not None:
            conditions.append(F.col(f"`{key}`") >= _literal(wanted.key.low, key_type))
        if wanted.key.high is not None:
            conditions.append(F.col(f"`{key}`") <= _literal(wanted.key.high, key_type))
    return reduce(and_, conditions) if conditions else None


def _time_conditions(name: str, bounds: TimeBounds) -> list[str]:
    return [
        *([f"`{name}` >= timestamp_micros({bounds.start}L)"] if bounds.start is not None else []),
        *([f"`{name}` < timestamp_micros({bounds.stop}L)"] if bounds.stop is not None else []),
    ]


def _literal(value: Key, type_: pa.DataType) -> Column:
    from pyspark.sql import functions as F

    if isinstance(value, bytes):
        return F.lit(bytearray(value))
    if pa.types.is_timestamp(type_):
        if type_.tz is not None:
            return F.timestamp_micros(F.lit(value))
        return F.lit(str(datetime(1970, 1, 1) + timedelta(microseconds=int(value)))).cast("timestamp_ntz")
    if pa.types.is_date(type_):
        return F.date_from_unix_date(F.lit(value))
    if pa.types.is_unsigned_integer(type_) and type_.bit_width == 64:
        return F.lit(str(value)).cast("decimal(20,0)")
    return F.lit(value)
