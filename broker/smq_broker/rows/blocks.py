"""Rows in memory. The entries of a log share blocks of rows, because a record batch per entry costs 5 KB.

A block has one of two forms: an Arrow batch, or the lists of a small batch (``small_batches``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smq_broker.rows.batches import WireSchemas
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import PartitionRows
from smq_proto.v1 import data_pb2 as pb

# A smaller received block is copied, because it would pin a much larger network buffer. Such blocks are joined later.
COPY_BELOW_BYTES = 64 * 1024


class Block(ABC):
    """Rows with a topic's columns. Nothing changes them."""

    __slots__ = ()

    num_rows: int
    nbytes: int
    """What the block holds. For a slice of an Arrow batch, what the whole batch holds."""
    kind: str
    """Neighbours of one kind can be joined."""

    @property
    def is_small(self) -> bool:
        """Whether it is worth being joined with others."""
        return self.nbytes < COPY_BELOW_BYTES

    @abstractmethod
    def slice(self, first: int, rows: int) -> Block:
        """The rows ``first .. first + rows - 1``, without a copy of large ones."""

    @abstractmethod
    def accept(self, wire: WireSchemas, same_schema: bool, copy_below: int = COPY_BELOW_BYTES) -> Block:
        """Received rows as the log keeps them: with the topic's schema, and copied out of smaller buffers of the
        network than ``copy_below`` bytes.

        ``same_schema`` is what ``check_stream`` returned. Raises SchemaMismatch.
        """

    @abstractmethod
    def join(self, run: Sequence[Self]) -> Sequence[Block]:
        """The rows of these blocks of one kind in fewer blocks, if that costs little. This block is the first."""

    @abstractmethod
    def to_arrow(self) -> pa.RecordBatch: ...

    @abstractmethod
    def to_pb(self) -> pb.SmallBatch | None:
        """The rows as the header of a message takes them. None if they go beside it, as ``to_arrow``."""

    @abstractmethod
    def partition_bounds(self, first: int, rows: int) -> tuple[int, int]:
        """The lowest and the highest partition of the rows ``first .. first + rows - 1``, at least one."""

    @abstractmethod
    def count_partitions(self, first: int, rows: int, range_: KeyRange, counts: list[int]) -> None:
        """Counts these rows in equal slices of the range, in which their partitions are."""

    @abstractmethod
    def partition_rows(self, first: int, rows: int) -> PartitionRows:
        """How many of these rows, at least one, each partition has."""


class ArrowBlock(Block):
    """No code runs per row: the bounds and the counts of its partition column are vectorised."""

    __slots__ = ("_partitions", "batch", "nbytes", "num_rows")

    kind = "arrow"

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.num_rows: int = batch.num_rows
        self.nbytes: int = batch.get_total_buffer_size()
        self._partitions: npt.NDArray[np.int32] | None = None

    def slice(self, first: int, rows: int) -> ArrowBlock:
        return ArrowBlock(self.batch.slice(first, rows))

    def accept(self, wire: WireSchemas, same_schema: bool, copy_below: int = COPY_BELOW_BYTES) -> ArrowBlock:
        batch = wire.check(self.batch, same_schema)
        if self.nbytes < copy_below:
            batch = pa.concat_batches([batch, wire.empty])
        return self if batch is self.batch else ArrowBlock(batch)

    def join(self, run: Sequence[Self]) -> Sequence[Block]:
        return run

    def to_arrow(self) -> pa.RecordBatch:
        return self.batch

    def to_pb(self) -> None:
        return None

    def partition_bounds(self, first: int, rows: int) -> tuple[int, int]:
        own = self._partition_column[first : first + rows]
        if rows == 1:
            only = int(own[0])
            return only, only
        return int(own.min()), int(own.max())

    def count_partitions(self, first: int, rows: int, range_: KeyRange, counts: list[int]) -> None:
        own = self._partition_column[first : first + rows]
        slices = (own - range_.start) * len(counts) // len(range_)
        for number, count in enumerate(np.bincount(slices).tolist()):
            counts[number] += count

    def partition_rows(self, first: int, rows: int) -> PartitionRows:
        partitions, counts = np.unique(self._partition_column[first : first + rows], return_counts=True)
        return tuple(zip(partitions.tolist(), counts.tolist(), strict=True))

    @property
    def _partition_column(self) -> npt.NDArray[np.int32]:
        """The partition column of a checked batch, without a copy. Shape (rows,)."""
        if self._partitions is None:
            self._partitions = self.batch.column(0).to_numpy(zero_copy_only=True)
        return self._partitions
