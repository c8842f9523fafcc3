"""Where in its range a segment's messages are, for the leader that may split it."""

from __future__ import annotations

from smq_broker.rows.blocks import Block
from smq_core.model.keyspace import KeyRange


class RangeHistogram:
    """Counts a segment's messages in at most 64 equal slices of its range."""

    def __init__(self, range_: KeyRange) -> None:
        self._range = range_
        self._counts = [0] * min(64, len(range_))

    def count(self, block: Block, first: int, rows: int, low: int, high: int) -> None:
        """Counts the rows ``first .. first + rows - 1`` of a block, whose partitions lie in ``low .. high``."""
        if low == high:
            self._counts[(low - self._range.start) * len(self._counts) // len(self._range)] += rows
        else:
            block.count_partitions(first, rows, self._range, self._counts)

    @property
    def slices(self) -> list[int]:
        return list(self._counts)
