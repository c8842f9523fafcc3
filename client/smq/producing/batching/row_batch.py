"""Messages in plain lists that become an Arrow batch when they are sent.

Making and splitting Arrow arrays costs the same for one message as for a hundred, and a producer of few messages has
few in each batch. Therefore its rows stay in lists, and are split there by segment. All producers of the client share a
stream. When it has put its next message together, the rows of all producers are encoded at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import pyarrow as pa

from smq.producing.encoding.batch_encoder import BatchEncoder
from smq.producing.encoding.keys import RowPartitions
from smq_storage.chunks.array_buffers import array_of
from smq_storage.chunks.schemas import HEADERS
from smq_storage.chunks.small_arrays import FEW, binary_array, no_headers, time_array

MAX_ROWS = FEW
# More rows or bytes than that are encoded at once, because they would be encoded anew each time they are sent.
MAX_BYTES = 32 << 10

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True, kw_only=True)
class RowBatch:
    """Checked messages of one schema version, and the partition of each. Nothing changes it.

    ``values`` are as in :meth:`BatchEncoder.columns_of`. ``keys`` are empty if no message has one, or if the key is a
    column. ``times`` are in nanoseconds since 1970. ``timestamps``, in microseconds since 1970, and ``headers`` are
    those that the program has given, by row.
    """

    encoder: BatchEncoder
    values: Sequence[object]
    keys: Sequence[bytes | None]
    times: Sequence[int]
    timestamps: Mapping[int, int]
    headers: Mapping[int, Headers]
    partitions: RowPartitions

    @property
    def num_rows(self) -> int:
        return len(self.times)

    def take(self, rows: Sequence[int]) -> RowBatch:
        """These rows, in this order."""
        width = self.encoder.row_width
        return RowBatch(
            encoder=self.encoder,
            values=[value for row in rows for value in self.values[row * width : (row + 1) * width]],
            keys=[self.keys[row] for row in rows] if self.keys else (),
            times=[self.times[row] for row in rows],
            timestamps={new: self.timestamps[row] for new, row in enumerate(rows) if row in self.timestamps},
            headers={new: self.headers[row] for new, row in enumerate(rows) if row in self.headers},
            partitions=array("i", [self.partitions[row] for row in rows]),
        )

    def encode(self) -> pa.RecordBatch:
        """The batch as it is sent, with the columns of the topic."""
        rows, encoder = self.num_rows, self.encoder
        times = time_array(self.times, self.timestamps)
        if encoder.typed:
            body = encoder.columns_of(self.values)
        else:
            keys = binary_array(self.keys) if self.keys else pa.nulls(rows, pa.binary())
            body = [keys, binary_array(self.values)]  # type: ignore[arg-type]
        headers = (
            pa.array([self.headers.get(row) for row in range(rows)], HEADERS) if self.headers else no_headers(rows)
        )
        columns = [array_of(self.partitions, pa.int32()), times, *body, headers]
        return pa.RecordBatch.from_arrays(columns, schema=encoder.schema)


def is_worth_joining(batch: RowBatch, nbytes: int) -> bool:
    """Whether these messages, of that many bytes, are so few that they should be encoded with others."""
    return batch.num_rows <= MAX_ROWS and nbytes <= MAX_BYTES


def join(batches: Sequence[RowBatch]) -> RowBatch:
    """The rows of these batches, which have the same schema version, one after the other."""
    if len(batches) == 1:
        return batches[0]
    keys: list[bytes | None] = []
    timestamps: dict[int, int] = {}
    headers: dict[int, Headers] = {}
    has_keys = any(batch.keys for batch in batches)
    first = 0
    for batch in batches:
        if has_keys:
            keys += batch.keys or repeat(None, batch.num_rows)
        timestamps.update((first + row, timestamp) for row, timestamp in batch.timestamps.items())
        headers.update((first + row, pairs) for row, pairs in batch.headers.items())
        first += batch.num_rows
    return RowBatch(
        encoder=batches[0].encoder,
        values=list(chain.from_iterable(batch.values for batch in batches)),
        keys=keys,
        times=list(chain.from_iterable(batch.times for batch in batches)),
        timestamps=timestamps,
        headers=headers,
        partitions=array("i", chain.from_iterable(batch.partitions for batch in batches)),
    )


def to_record_batch(batch: pa.RecordBatch | RowBatch) -> pa.RecordBatch:
    """The batch as it is sent."""
    return batch.encode() if isinstance(batch, RowBatch) else batch


def encode_together(batches: Sequence[pa.RecordBatch | RowBatch]) -> pa.RecordBatch:
    """The rows of these batches, at least one, as they are sent together."""
    if all(isinstance(batch, RowBatch) for batch in batches):
        return join(batches).encode()  # type: ignore[arg-type]
    arrow = [to_record_batch(batch) for batch in batches]
    return arrow[0] if len(arrow) == 1 else pa.concat_batches(arrow)
