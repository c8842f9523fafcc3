"""The batches that a consumer returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from smq_core.errors import InvalidRequest
from smq_storage.uploads.large_values import LargeValue, find_large_values


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive messages of one segment.

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

    def __reduce__(self) -> tuple[object, ...]:
        """For pickling. The copy has no consumer that fetches large values."""
        return type(self), (self.table, self.segment, self.first_offset, self.positions)

    def __len__(self) -> int:
        return int(self.table.num_rows)
