"""The batches that a consumer returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa


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

    @property
    def next_offset(self) -> int:
        """The offset after that of the last message."""
        return self.first_offset + int(self.table.num_rows)

    def __len__(self) -> int:
        return int(self.table.num_rows)
