"""The batches that a consumer returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import pyarrow as pa

from smq_core.errors import InvalidRequest
from smq_storage.chunks.column_types import with_leaves
from smq_storage.chunks.python_times import python_values
from smq_storage.chunks.schemas import RESERVED, has_plain_messages
from smq_storage.uploads.large_values import HEADER, LargeValue, find_large_values

# A batch may have a million rows. At most this number of them are Python objects at a time while it is iterated.
ROWS_AT_ONCE = 1024
DECIMAL128_DIGITS = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a batch. ``producer.send(m.value, m.key, m.headers, m.timestamp)`` sends the same again.

    On a topic with a schema ``value`` is a dictionary of the topic's columns, the key column among them, and ``key`` is
    None. ``headers`` are pairs of a name and a value. ``timestamp`` is the producer's, ``appended`` the broker's.
    """

    value: bytes | dict[str, Any] | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: datetime
    segment: str
    offset: int
    partition: int
    appended: datetime


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Batch:
    """Consecutive messages of one segment. Iterating yields them as :class:`Message`.

    ``table`` has the columns of a chunk: ``partition``, ``timestamp``, ``appended``, then ``key`` and ``value`` (or the
    topic's own columns), then ``headers``. If the topic's schema changed, the consumer's option ``schema`` says which
    version of the columns it has. Row i is at offset ``first_offset + i``. ``positions`` says how far
    the consumer has read including this batch, ``{segment: next offset}``. Another consumer with these positions as its
    ``start`` continues exactly there.
    """

    table: pa.Table
    segment: str
    first_offset: int
    positions: Mapping[str, int] = field(repr=False)
    topic: str = ""
    """The topic's full name, ``namespace/topic``."""
    _read: Callable[[LargeValue, str, int], bytes] | None = field(default=None, repr=False, compare=False)

    @property
    def next_offset(self) -> int:
        """The offset after that of the last message."""
        return self.first_offset + int(self.table.num_rows)

    @property
    def large_values(self) -> dict[int, int]:
        """The rows whose values the table does not have, because they are in objects, and the values' sizes in bytes.

        Only a consumer with ``large_values="lazy"`` returns such rows.
        """
        return {row: large.size for row, large in find_large_values(self.table).items()}

    def value(self, row: int) -> bytes | None:
        """The value of a message, fetched from the filer if the table does not have it.

        Raises DataLost, with the object's name, if the object is gone or was altered; StoreUnavailable; InvalidRequest
        on a topic with a schema, or if the table does not have the value and the batch was pickled; IndexError.
        """
        if "value" not in self.table.column_names:
            raise InvalidRequest("messages of a topic with a schema have no value: read the columns of the table")
        if not 0 <= row < len(self):
            raise IndexError(f"the batch has {len(self)} rows, there is no row {row}")
        large = find_large_values(self.table.slice(row, 1)).get(0)
        if large is not None and self._read is None:
            raise InvalidRequest(
                f"the batch is a copy without a consumer, so the value of row {row} cannot be fetched: fetch it before "
                'you pickle the batch, or read with large_values="eager"'
            )
        if large is None or self._read is None:
            value: bytes | None = self.table.column("value")[row].as_py()
            return value
        return self._read(large, self.segment, self.first_offset + row)

    def to_pandas(self, **options: Any) -> Any:
        """The table as a pandas DataFrame. ``options`` are those of :meth:`pyarrow.Table.to_pandas`."""
        _library("pandas")
        return self.table.to_pandas(**options)

    def to_polars(self) -> Any:
        """The table as a Polars DataFrame.

        Raises InvalidRequest if a decimal256 has more digits than Polars has, 38.
        """
        return _library("polars").from_arrow(_with_narrow_decimals(self.table))

    def __iter__(self) -> Iterator[Message]:
        """The messages in the order of their offsets. Raises what :meth:`value` raises, for values in objects.

        A time beyond the years 1 to 9999, which only another client can have written, is the nearest one that Python
        has; ``table`` has it as it is.
        """
        large = self.large_values
        plain = has_plain_messages(self.table.schema)
        for start in range(0, len(self), ROWS_AT_ONCE):
            for row, columns in enumerate(python_values(self.table.slice(start, ROWS_AT_ONCE)), start):
                yield self._message(row, columns, plain, row in large)

    def _message(self, row: int, columns: dict[str, Any], plain: bool, is_large: bool) -> Message:
        body = {name: found for name, found in columns.items() if name not in RESERVED}
        headers = [(header["key"], header["value"]) for header in columns["headers"] or ()]
        key: bytes | None = None
        value: bytes | dict[str, Any] | None = body
        if plain:
            key, value = body["key"], self.value(row) if is_large else body["value"]
        return Message(
            value=value,
            key=key,
            headers=[(name, found) for name, found in headers if name != HEADER] if is_large else headers,
            timestamp=columns["timestamp"],
            segment=self.segment,
            offset=self.first_offset + row,
            partition=columns["partition"],
            appended=columns["appended"],
        )

    def __repr__(self) -> str:
        last = f"..{self.next_offset - 1}" if len(self) else ""
        return f"Batch({self.segment!r}, {len(self)} messages at {self.first_offset}{last})"

    def __reduce__(self) -> tuple[object, ...]:
        """For pickling. The copy has no consumer that fetches large values."""
        fields = {
            "table": self.table,
            "segment": self.segment,
            "first_offset": self.first_offset,
            "positions": self.positions,
            "topic": self.topic,
        }
        return partial(type(self), **fields), ()

    def __len__(self) -> int:
        return int(self.table.num_rows)


def _library(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError:
        raise ImportError(f"{name} is not installed: pip install {name}", name=name) from None


def _with_narrow_decimals(table: pa.Table) -> pa.Table:
    """The table with decimal128 in place of decimal256. Raises InvalidRequest if a value does not fit."""

    def narrow(leaf: pa.DataType) -> pa.DataType:
        if not pa.types.is_decimal256(leaf):
            return leaf
        return pa.decimal128(DECIMAL128_DIGITS, min(leaf.scale, DECIMAL128_DIGITS))

    for number, column in enumerate(table.schema):
        narrowed = with_leaves(column.type, narrow)
        if narrowed == column.type:
            continue
        try:
            table = table.set_column(number, column.name, table.column(number).cast(narrowed))
        except pa.ArrowInvalid:
            raise InvalidRequest(
                f"column {column.name} has decimals of more than {DECIMAL128_DIGITS} digits, which Polars does not "
                "have: use batch.to_pandas() or batch.table"
            ) from None
    return table
