"""Which files Spark's filters leave out. Filters that say nothing about files are ignored: Spark applies all anyway."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyspark_smq.errors import InvalidOption
from pyspark_smq.options import timestamp_of
from pyspark_smq.planning.wanted import KeyBounds, TimeBounds, Wanted, stored_key


def wanted_by(filters: Sequence[Filter], schema: pa.Schema, key: str | None) -> Wanted:
    """The bounds that all of these filters together set. ``schema`` is the topic's, ``key`` names its key column."""
    wanted = Wanted()
    for column, low, high in filter(None, map(_bounds, filters)):
        if column in ("appended", "timestamp"):
            times = _times(low, high)
            if column == "appended":
                wanted = Wanted(wanted.appended.both(times), wanted.timestamp, wanted.key)
            else:
                wanted = Wanted(wanted.appended, wanted.timestamp.both(times), wanted.key)
        elif column == key:
            keys = _keys(low, high, schema.field(key).type)
            wanted = Wanted(wanted.appended, wanted.timestamp, wanted.key.both(keys))
    return wanted


def _bounds(it: Filter) -> tuple[str, Any, Any] | None:
    """Column, lowest and highest value that it lets pass, both inclusive; None for a filter without bounds."""
    if not isinstance(it, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    if len(it.attribute) != 1:
        return None
    column = it.attribute[0]
    if isinstance(it, EqualTo):
        return column, it.value, it.value
    if isinstance(it, In):
        values = [value for value in it.value if value is not None]
        return (column, min(values), max(values)) if values else None
    if isinstance(it, GreaterThan | GreaterThanOrEqual):
        return column, it.value, None
    return column, None, it.value


def _times(low: Any, high: Any) -> TimeBounds:
    return TimeBounds(
        timestamp_of(low).micros if isinstance(low, datetime) else None,
        timestamp_of(high).micros + 1 if isinstance(high, datetime) else None,
    )


def _keys(low: Any, high: Any, type_: pa.DataType) -> KeyBounds:
    try:
        return KeyBounds(
            stored_key(low, type_) if low is not None else None, stored_key(high, type_) if high is not None else None
        )
    except InvalidOption:
        return KeyBounds()
