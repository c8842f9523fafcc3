"""Where in its range a segment's messages are, for the leader that may split it."""

from __future__ import annotations

from smq_broker.rows.blocks import Block
from smq_core.model.keyspace import KeyRange
from smq_core.replica.log_entries import IncomingBatch


class RangeHistogram:
    """Counts a segment's messages in at most 64 equal slices of its range."""

    def __init__(self, range_: KeyRange) -> None:
        self._range = range_
        self._counts = [0] * min(64, len(range_))

    def count(self, block: Block, first: int, batch: IncomingBatch) -> None:
        """Counts a batch, whose rows are those of the block from ``first`` on."""
        low = batch.partition_min
        if low == batch.partition_max:
            self._counts[(low - self._range.start) * len(self._counts) // len(self._range)] += batch.rows
        else:
            block.count_partitions(first, batch.rows, self._range, self._counts)

    @property
    def slices(self) -> list[int]:
        return list(self._counts)
