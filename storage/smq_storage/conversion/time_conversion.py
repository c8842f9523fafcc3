"""Conversions of times to columns of another unit than Python's microseconds; a batch has these as whole units."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time

import pyarrow as pa

from smq_core.errors import InvalidRequest
from smq_storage.chunks.python_times import MAX_MICROS, MIN_MICROS, NOT_IN_PYTHON, all_in_python
from smq_storage.conversion.exact_cast import InexactValue, kind_of, show

_NANOS_OF_UNIT = {"s": 10**9, "ms": 10**6, "ns": 1}
_MAX_INT64 = (1 << 63) - 1
_EPOCH, _EPOCH_UTC = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)


def time_in_units(target: pa.DataType, by_arrow: Callable[[object, pa.DataType], object]) -> Callable[[object], object]:
    """The conversion to whole units. ``by_arrow`` converts what is no time of Python or pandas."""
    kind = kind_of(target)
    nanos_of_unit = _NANOS_OF_UNIT[target.unit]
    # Parquet has no seconds, so these are stored in milliseconds.
    highest = _MAX_INT64 // 1000 if target.unit == "s" else _MAX_INT64

    def convert(value: object) -> object:
        nanos = _nanos_of_day(value) if kind == "time of day" else _nanos(value, kind == "zoned time")
        if nanos is None:
            units, rest = by_arrow(value, target), 0
        else:
            units, rest = divmod(nanos, nanos_of_unit)
        if rest or not isinstance(units, int) or not -highest <= units <= highest:
            why = f"it is no whole number of {target.unit}" if rest else "it is out of range"
            raise InexactValue(f"{show(value)} does not fit {target}: {why}")
        if kind == "zoned time":
            require_python_time(value, pa.array([units], target))
        return units

    return convert


def require_python_time(value: object, converted: pa.Array) -> None:
    """Raises InexactValue if Python does not have the time that a value was converted to, in its column's zone."""
    if not all_in_python(converted):
        raise InexactValue(f"{show(value)} does not fit {converted.type}: {NOT_IN_PYTHON}")


def _nanos(value: object, zoned: bool) -> int | None:
    """Nanoseconds since 1970; None for what is no such time."""
    if not isinstance(value, datetime) or value != value:  # a NaT is not equal to itself
        return None
    of_pandas = getattr(value, "to_pydatetime", None)
    nanos = getattr(value, "nanosecond", 0)
    plain: datetime = value if of_pandas is None else of_pandas(warn=False)
    if (plain.utcoffset() is not None) != zoned:
        return None
    since = plain - (_EPOCH_UTC if zoned else _EPOCH)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000 + int(nanos)


def _nanos_of_day(value: object) -> int | None:
    if type(value) is not time or value.tzinfo is not None:
        return None
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond) * 1000


def check_timestamp(timestamp: object) -> int:
    """Returns microseconds since 1970. Raises InvalidRequest."""
    if isinstance(timestamp, datetime):
        if getattr(timestamp, "nanosecond", 0):  # of pandas.Timestamp
            raise InvalidRequest(f"a timestamp must be whole microseconds, not {timestamp!r}")
        aware = timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)
        delta = aware - datetime(1970, 1, 1, tzinfo=UTC)
        micros = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    elif isinstance(timestamp, int) and not isinstance(timestamp, bool):
        micros = timestamp
    else:
        raise InvalidRequest(f"a timestamp must be a datetime or whole microseconds since 1970, not {timestamp!r}")
    if MIN_MICROS <= micros <= MAX_MICROS:
        return micros
    raise InvalidRequest(
        f"the timestamp {timestamp!r} is not in the years 1 to 9999, in UTC; an integer is in microseconds since 1970, "
        "such as time.time_ns() // 1000"
    )
