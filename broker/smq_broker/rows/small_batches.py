"""A few messages of a topic without a schema, in lists, as they come from clients and go to followers.

A broker that gets one message at a time finds little of its code in the caches, so each call of Arrow or numpy costs
some tens of microseconds there. A batch takes about ten such calls. These messages become an Arrow batch when somebody
reads them, or when enough have come to share one.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Self

import pyarrow as pa

from smq_broker.rows.batches import WireSchemas
from smq_broker.rows.blocks import COPY_BELOW_BYTES, ArrowBlock, Block
from smq_core.errors import InvalidRequest
from smq_core.model.keyspace import KeyRange
from smq_core.model.partition_offsets import PartitionRows
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import MAX_SMALL_BATCH_ROWS
from smq_storage.chunks.array_buffers import array_of
from smq_storage.chunks.schemas import TIMESTAMP, message_schema
from smq_storage.chunks.small_arrays import binary_array, no_headers

# What Arrow holds of a message besides its key and value: partition, timestamp and two offsets.
ROW_BYTES = 20
# Arrow's column of partitions is signed.
MAX_PARTITION = (1 << 31) - 1

SCHEMA = message_schema()


class SmallBatch(Block):
    """All lists have one item for each message, in the same order; ``keys`` may be empty. Timestamps are microseconds
    since 1970.

    Nothing changes it.
    """

    __slots__ = ("keys", "kind", "nbytes", "num_rows", "partitions", "timestamps", "values")

    def __init__(
        self, partitions: Sequence[int], timestamps: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        self.partitions = partitions
        self.timestamps = timestamps
        self.keys = keys
        self.values = values
        self.num_rows = len(values)
        self.nbytes = sum(map(len, keys)) + sum(map(len, values)) + ROW_BYTES * self.num_rows
        """What Arrow would hold of it."""
        self.kind = "small, with keys" if keys else "small"

    def slice(self, first: int, rows: int) -> SmallBatch:
        """The messages ``first .. first + rows - 1``."""
        part = slice(first, first + rows)
        return SmallBatch(self.partitions[part], self.timestamps[part], self.keys[part], self.values[part])

    def to_arrow(self) -> pa.RecordBatch:
        """The messages with the columns of ``SCHEMA``."""
        columns = [
            array_of(array("i", self.partitions), pa.int32()),
            array_of(array("q", self.timestamps), TIMESTAMP),
            binary_array(self.keys) if self.keys else pa.nulls(self.num_rows, pa.binary()),
            binary_array(self.values),
            no_headers(self.num_rows),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def to_pb(self) -> pb.SmallBatch | None:
        """None also if there are too many rows."""
        if self.num_rows > MAX_SMALL_BATCH_ROWS:
            return None
        return pb.SmallBatch(partitions=self.partitions, timestamps=self.timestamps, keys=self.keys, values=self.values)

    def accept(self, wire: WireSchemas, same_schema: bool, copy_below: int = COPY_BELOW_BYTES) -> Block:
        """Large rows become an Arrow batch, because lists take more memory."""
        wire.check_small_batch()
        return self if self.is_small else ArrowBlock(self.to_arrow())

    def join(self, run: Sequence[Self]) -> Sequence[SmallBatch]:
        if len(run) == 1:
            return run
        return [
            SmallBatch(
                list(chain.from_iterable(batch.partitions for batch in run)),
                list(chain.from_iterable(batch.timestamps for batch in run)),
                list(chain.from_iterable(batch.keys for batch in run)),
                list(chain.from_iterable(batch.values for batch in run)),
            )
        ]

    def partition_bounds(self, first: int, rows: int) -> tuple[int, int]:
        if rows == 1:
            return self.partitions[first], self.partitions[first]
        own = self.partitions[first : first + rows]
        return min(own), max(own)

    def count_partitions(self, first: int, rows: int, range_: KeyRange, counts: list[int]) -> None:
        for partition in self.partitions[first : first + rows]:
            counts[(partition - range_.start) * len(counts) // len(range_)] += 1

    def partition_rows(self, first: int, rows: int) -> PartitionRows:
        return tuple(sorted(Counter(self.partitions[first : first + rows]).items()))


def read_small_batch(message: pb.SmallBatch) -> SmallBatch:
    """Raises InvalidRequest if some message lacks a part, if there are too many, or if Arrow could not hold one."""
    rows = len(message.values)
    if rows > MAX_SMALL_BATCH_ROWS:
        raise InvalidRequest(
            f"a small batch has {rows} messages, at most {MAX_SMALL_BATCH_ROWS} are accepted: send an Arrow batch"
        )
    if len(message.partitions) != rows or len(message.timestamps) != rows or len(message.keys) not in (0, rows):
        raise InvalidRequest(
            f"a small batch has {rows} values, {len(message.partitions)} partitions, {len(message.timestamps)} "
            f"timestamps and {len(message.keys)} keys: there must be one of each for every message, or no keys"
        )
    if rows and max(message.partitions) > MAX_PARTITION:
        raise InvalidRequest(f"a small batch has a partition above {MAX_PARTITION}")
    return SmallBatch(list(message.partitions), list(message.timestamps), list(message.keys), list(message.values))


def rows_of(message: pb.ProducerFrame | pb.ReplicationBatch, batch: pa.RecordBatch | None) -> Block | None:
    """The rows of a message that came with this Arrow batch, if any. Raises InvalidRequest."""
    if not message.HasField("small_batch"):
        return None if batch is None else ArrowBlock(batch)
    if batch is not None:
        raise InvalidRequest("a message has a small batch and an Arrow batch: send either of them")
    return read_small_batch(message.small_batch)
