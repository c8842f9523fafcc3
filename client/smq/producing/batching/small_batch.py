"""A few messages of a topic without a schema in the lists of a protobuf message, which saves both ends Arrow's cost."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from smq.producing.batching.row_batch import RowBatch
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import MAX_SMALL_BATCH_ROWS
from smq_storage.chunks.small_arrays import timestamps_of


def add_small_batch(frame: pb.ProducerFrame, batches: Sequence[pa.RecordBatch | RowBatch]) -> bool:
    """Adds the rows of these batches to the frame. False, and nothing is added, if a small batch cannot have them."""
    rows = [batch for batch in batches if isinstance(batch, RowBatch)]
    if len(rows) < len(batches) or sum(batch.num_rows for batch in rows) > MAX_SMALL_BATCH_ROWS:
        return False
    has_keys = bool(rows[0].keys)
    if not all(bool(batch.keys) is has_keys and _fits(batch) for batch in rows):
        return False
    added = frame.small_batch
    for batch in rows:
        added.partitions.extend(batch.partitions)
        added.timestamps.extend(timestamps_of(batch.times, batch.timestamps))
        added.keys.extend(batch.keys)  # type: ignore[arg-type]
        added.values.extend(batch.values)  # type: ignore[arg-type]
    return True


def _fits(batch: RowBatch) -> bool:
    return not (batch.encoder.typed or batch.headers or None in batch.values or None in batch.keys)
