"""What a read wants, as a condition for Spark's rows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

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

    conditions = [*_time_conditions("appended", wanted.appended), *_time_conditions("timestamp", wanted.timestamp)]
    if key is not None and key_type is not None:
        column = F.col(f"`{key}`")
        if wanted.key.low is not None:
            conditions.append(column >= _literal(wanted.key.low, key_type))
        if wanted.key.high is not None:
            conditions.append(column <= _literal(wanted.key.high, key_type))
    whole: Column | None = None
    for condition in conditions:
        whole = condition if whole is None else whole & condition
    return whole


def _time_conditions(name: str, bounds: TimeBounds) -> list[Any]:
    from pyspark.sql import functions as F

    column = F.col(name)
    return [
        *([column >= F.timestamp_micros(F.lit(bounds.start))] if bounds.start is not None else []),
        *([column < F.timestamp_micros(F.lit(bounds.stop))] if bounds.stop is not None else []),
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
