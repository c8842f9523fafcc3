"""Which messages a read wants, and which files certainly have none of them.

A file is left out by its entry in the file list alone, before Spark sees its path. Rows are filtered by Spark with the
same bounds, so that a file that is read for nothing costs time only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa

from pyspark_smq.errors import InvalidOption
from pyspark_smq.options import timestamp_of
from smq_core.file_lists.file_list import FileEntry
from smq_core.file_lists.key_bounds import KeyBound, binary_bound
from smq_core.model.entities import Micros

# A key as file lists have it: dates are days, and times microseconds, since 1970.
Key: TypeAlias = int | str | bytes

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """``start <= time < stop``, in microseconds since the Unix epoch; None is unbounded."""

    start: Micros | None = None
    stop: Micros | None = None

    @property
    def is_bounded(self) -> bool:
        return self.start is not None or self.stop is not None

    def may_have(self, smallest: Micros | None, largest: Micros | None) -> bool:
        """Whether any time from ``smallest`` to ``largest`` is within; True if these are unknown."""
        before = self.start is not None and largest is not None and largest < self.start
        after = self.stop is not None and smallest is not None and smallest >= self.stop
        return not (before or after)

    def both(self, other: TimeBounds) -> TimeBounds:
        """The times that are within both."""
        return TimeBounds(_tighter(max, self.start, other.start), _tighter(min, self.stop, other.stop))


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """``low <= key <= high``; None is unbounded."""

    low: Key | None = None
    high: Key | None = None

    @property
    def is_bounded(self) -> bool:
        return self.low is not None or self.high is not None

    def may_have(self, smallest: KeyBound, largest: KeyBound) -> bool:
        """Whether a key between these bounds of a file list is within; True if they are unknown."""
        if not self.is_bounded:
            return True
        binary = isinstance(self.low if self.low is not None else self.high, bytes)
        least: Any = binary_bound(smallest) if binary else smallest
        most: Any = binary_bound(largest) if binary else largest
        below = self.low is not None and most is not None and most < self.low
        above = self.high is not None and least is not None and least > self.high
        return not (below or above)

    def both(self, other: KeyBounds) -> KeyBounds:
        """The keys that are within both, which are of one type."""
        return KeyBounds(_tighter(max, self.low, other.low), _tighter(min, self.high, other.high))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The messages with these times and keys. ``appended`` is when the log got them, ``timestamp`` the producer's."""

    appended: TimeBounds = TimeBounds()
    timestamp: TimeBounds = TimeBounds()
    key: KeyBounds = KeyBounds()

    def may_be_in(self, file: FileEntry) -> bool:
        """Whether the file may have a message that is wanted."""
        return (
            self.appended.may_have(file.appended_min, file.appended_max)
            and self.timestamp.may_have(file.timestamp_min, file.timestamp_max)
            and self.key.may_have(file.key_min, file.key_max)
        )


def time_bounds(name: str, bounds: tuple[datetime | None, datetime | None] | None) -> TimeBounds:
    """The argument ``name`` of ``read``. Raises InvalidOption."""
    if bounds is None:
        return TimeBounds()
    if not (isinstance(bounds, tuple) and len(bounds) == 2 and all(isinstance(it, datetime | None) for it in bounds)):
        raise InvalidOption(f"{name} must be two datetimes (from, to), of which one may be None, not {bounds!r}")
    start, stop = (None if it is None else timestamp_of(it).micros for it in bounds)
    if start is not None and stop is not None and start > stop:
        raise InvalidOption(f"{name} begins after it ends: {bounds[0]} to {bounds[1]}", option=name)
    return TimeBounds(start, stop)


def key_bounds(bounds: tuple[Any, Any] | None, type_: pa.DataType | None) -> KeyBounds:
    """The argument ``key`` of ``read`` for a key column of this type; None if the topic has none.

    Raises InvalidOption.
    """
    if bounds is None:
        return KeyBounds()
    if type_ is None:
        raise InvalidOption("the topic has no key column, so that key= chooses nothing", option="key")
    if not (isinstance(bounds, tuple) and len(bounds) == 2):
        raise InvalidOption(f"key must be two keys (from, to), of which one may be None, not {bounds!r}", option="key")
    low, high = (None if it is None else stored_key(it, type_) for it in bounds)
    if low is not None and high is not None and low > high:  # type: ignore[operator]
        raise InvalidOption(f"key begins after it ends: {bounds[0]!r} to {bounds[1]!r}", option="key")
    return KeyBounds(low, high)


def stored_key(value: Any, type_: pa.DataType) -> Key:
    """A key as file lists have it. Raises InvalidOption if it does not fit a key column of this type."""
    if pa.types.is_binary(type_) and isinstance(value, bytes | bytearray | str):
        return value.encode() if isinstance(value, str) else bytes(value)
    if pa.types.is_string(type_) and isinstance(value, str):
        return value
    if pa.types.is_integer(type_) and isinstance(value, int) and not isinstance(value, bool):
        return value
    if pa.types.is_timestamp(type_) and isinstance(value, datetime):
        if (value.tzinfo is None) == (type_.tz is None):
            return timestamp_of(value).micros
        raise InvalidOption(f"key has {value!r}, but the key column is {type_}", option="key")
    if pa.types.is_date(type_) and isinstance(value, date) and not isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(days=1)
    raise InvalidOption(f"key has {value!r}, which cannot bound a key column of {type_}", option="key")


def _tighter(choose: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)
