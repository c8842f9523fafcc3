"""Received record batches: validated, counted, and copied out of the network's buffers.

No code runs per row of an Arrow batch: the bounds and the histogram of its partition column are vectorised. A small
batch, whose rows are in lists, has at most some hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smq_broker.rows.small_batches import SCHEMA, SmallBatch
from smq_core.errors import SchemaMismatch
from smq_core.model.entities import Topic
from smq_core.model.keyspace import KeyRange
from smq_storage.chunks.parquet_codec import chunk_schema, message_schema

# A smaller received batch is copied, because it would pin a much larger network buffer.
COPY_BELOW_BYTES = 64 * 1024

# Memory of one entry besides its rows: Python and Arrow objects, measured with blocks of 64 batches.
ENTRY_OVERHEAD_BYTES = 512

# Small batches are sent together up to this many bytes.
MAX_MESSAGE_BYTES = 1024 * 1024

Partitions = npt.NDArray[np.int32]


def size_of_names(large_values: Sequence[str]) -> int:
    """Memory of the names of an entry's large values, in bytes."""
    return sum(map(len, large_values))


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSchemas:
    """A topic's Arrow schemas."""

    message: pa.Schema
    chunk: pa.Schema
    empty: pa.RecordBatch
    required: tuple[int, ...]
    key: str = "key"
    """The key column."""
    takes_small_batches: bool = True
    """Whether the topic has no schema."""

    @classmethod
    def of(cls, topic: Topic) -> WireSchemas:
        message = message_schema(topic.spec.schema)
        return cls(
            message=message,
            chunk=chunk_schema(topic.spec.schema),
            empty=pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in message], schema=message),
            required=tuple(number for number, field in enumerate(message) if not field.nullable),
            key=topic.spec.key or "key",
            takes_small_batches=message.equals(SCHEMA),
        )

    def check_stream(self, schema: pa.Schema) -> bool:
        """True if this stream has exactly the topic's schema, False if only nullability differs.

        Raises SchemaMismatch if columns or types differ.
        """
        if schema.equals(self.message):
            return True
        if schema.names == self.message.names and schema.types == self.message.types:
            return False
        raise SchemaMismatch(
            f"the stream has the columns ({_describe_schema(schema)}), expected ({_describe_schema(self.message)})",
            expected=_describe_schema(self.message),
        )

    def accept(self, batch: pa.RecordBatch, same_schema: bool) -> pa.RecordBatch:
        """A checked batch from the network, copied if it is small. Raises SchemaMismatch."""
        return self.copy_if_small(self.check(batch, same_schema))

    def check(self, batch: pa.RecordBatch, same_schema: bool) -> pa.RecordBatch:
        """The batch with the topic's schema. Raises SchemaMismatch.

        It is validated in full (about 2 µs for 1000 rows), because invalid offsets would crash the process when the
        batch is written.
        """
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f"the batch is damaged: {error}", expected=_describe_schema(self.message)) from None
        for number in self.required:
            if nulls := batch.column(number).null_count:
                raise SchemaMismatch(
                    f"column {self.message.field(number).name!r} has {nulls} nulls, but is not nullable",
                    expected=_describe_schema(self.message),
                )
        if not same_schema:
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.message)
        return batch

    def accept_small(self, batch: SmallBatch) -> SmallBatch | pa.RecordBatch:
        """The batch itself, or an Arrow batch with its rows if they are large, because lists take more memory.

        Raises SchemaMismatch if the topic has a schema.
        """
        if not self.takes_small_batches:
            raise SchemaMismatch(
                "a small batch has keys and values, but the topic has a schema: send an Arrow batch",
                expected=_describe_schema(self.message),
            )
        return batch if batch.nbytes < COPY_BELOW_BYTES else batch.to_arrow()

    def copy_if_small(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch itself, or a copy of a small one."""
        if batch.get_total_buffer_size() >= COPY_BELOW_BYTES:
            return batch
        return pa.concat_batches([batch, self.empty])


def partition_bounds(partitions: Partitions | Sequence[int]) -> tuple[int, int]:
    """The lowest and the highest partition."""
    if len(partitions) == 1:
        only = int(partitions[0])
        return only, only
    if not isinstance(partitions, np.ndarray):
        return min(partitions), max(partitions)
    return int(partitions.min()), int(partitions.max())


def partition_column(batch: pa.RecordBatch) -> Partitions:
    """The partition column of a checked batch, without a copy. Shape (rows,), int32."""
    column: Partitions = batch.column(0).to_numpy(zero_copy_only=True)
    return column


class RangeHistogram:
    """Counts a segment's messages in at most 64 equal slices of its range."""

    def __init__(self, range_: KeyRange) -> None:
        self._range = range_
        self._slice_count = min(64, len(range_))
        self._counts = [0] * self._slice_count

    def count(self, partitions: Partitions | Sequence[int], low: int, high: int) -> None:
        """Counts one batch, whose partitions lie in ``low .. high``. Takes about 5 µs for 1000 rows."""
        start, length = self._range.start, len(self._range)
        if low == high:
            self._counts[(low - start) * self._slice_count // length] += len(partitions)
        elif isinstance(partitions, np.ndarray):
            slices = (partitions - start) * self._slice_count // length
            for number, count in enumerate(np.bincount(slices).tolist()):
                self._counts[number] += count
        else:
            for partition in partitions:
                self._counts[(partition - start) * self._slice_count // length] += 1

    @property
    def slices(self) -> list[int]:
        return list(self._counts)


def _describe_schema(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema)
