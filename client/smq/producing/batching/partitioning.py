"""Sub-batches, and how batches are split by segment, with the routing table from partitions to segments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from smq.producing.batching.row_batch import RowBatch
from smq.producing.delivery_state import DeliveryState, RowIndices
from smq.producing.encoding.keys import RowPartitions
from smq.producing.uploads.large_values import PendingLargeValue
from smq.producing.uploads.uploaded_rows import UploadedRows
from smq_core.model.entities import Segment
from smq_core.producing.routes import Route
from smq_storage.chunks.array_buffers import array_of, numbers_of

# A larger sub-batch goes on the bulk lane.
BULK_BYTES = 64 << 10


@dataclass(slots=True, kw_only=True)
class SubBatch:
    """Rows of one batch that belong to one segment. ``rows`` are their indices in the batch, None means all of them.

    Few rows are a :class:`RowBatch` until they are sent. If the rows are in an upload, ``batch`` says which, and
    ``rows`` are indices of the upload's partitions.

    ``cost`` is their share of the producer's budget, in bytes; ``created_at`` is when the program handed them over
    (monotonic seconds). ``schema_version`` is that of the batch's columns. A message with a ``large_value`` is a
    separate batch, which is sent after the upload.
    """

    batch: pa.RecordBatch | RowBatch | UploadedRows
    delivery_state: DeliveryState
    rows: RowIndices
    cost: int
    created_at: float
    schema_version: int = 0
    large_value: PendingLargeValue | None = None

    @property
    def is_large(self) -> bool:
        """Whether it goes on the bulk lane."""
        is_uploaded = self.large_value is not None or isinstance(self.batch, UploadedRows)
        return is_uploaded or self.cost > BULK_BYTES

    def fits(self, segment: Segment) -> bool:
        """Whether it can be sent to the segment now. One that needs a newer schema waits for the successors."""
        is_uploaded = self.large_value is None or self.large_value.uploaded
        return is_uploaded and self.schema_version <= segment.schema_version

    def part(self, batch: pa.RecordBatch | RowBatch | UploadedRows, rows: RowIndices, cost: int) -> SubBatch:
        """Some of the rows."""
        state, created_at = self.delivery_state, self.created_at
        return SubBatch(
            batch=batch,
            delivery_state=state,
            rows=rows,
            cost=cost,
            created_at=created_at,
            schema_version=self.schema_version,
            large_value=self.large_value,
        )


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """The segment of each partition, ``segments[table[partition]]``. ``table`` is uint16 of shape (P,)."""

    segments: tuple[Segment, ...]
    table: npt.NDArray[np.uint16]

    @staticmethod
    def of(route: Route) -> RoutingTable:
        segments = route.segments
        numbers = {segment.name: number for number, segment in enumerate(segments)}
        table = np.zeros(route.spans[-1].stop, np.uint16)
        for span in route.spans:
            table[span.start : span.stop] = numbers[span.segment.name]
        return RoutingTable(segments, table)

    def segment_of(self, partition: int) -> Segment:
        return self.segments[self.table[partition]]


def partition_by_segment(
    sub_batch: SubBatch, route: RoutingTable, row_partitions: RowPartitions | None = None
) -> list[tuple[Segment, SubBatch]]:
    """Splits a sub-batch by segment; rows keep their order.

    ``row_partitions`` are the partitions of a batch's rows; None takes them from its first column. Copies nothing if
    all rows go to one segment, and nothing of an upload.
    """
    if len(route.segments) == 1:
        return [(route.segments[0], sub_batch)]
    if isinstance(sub_batch.batch, UploadedRows):
        return _split_upload(sub_batch, sub_batch.batch, route)
    if isinstance(sub_batch.batch, RowBatch):
        return _split_rows(sub_batch, sub_batch.batch, route)
    if row_partitions is None:
        row_partitions = numbers_of(sub_batch.batch.column(0))
    if len(row_partitions) == 1:
        return [(route.segment_of(int(row_partitions[0])), sub_batch)]
    targets = route.table[row_partitions]
    first = int(targets[0])
    if (targets == first).all():
        return [(route.segments[first], sub_batch)]
    order = np.argsort(targets, kind="stable")
    taken = sub_batch.batch.take(array_of(order, pa.int64()))
    counts = np.bincount(targets, minlength=len(route.segments))
    rows = order if sub_batch.rows is None else sub_batch.rows[order]
    parts: list[tuple[Segment, SubBatch]] = []
    at, left, total = 0, sub_batch.cost, sub_batch.batch.num_rows
    for number, count in enumerate(counts.tolist()):
        if not count:
            continue
        stop = at + count
        cost = left if stop == total else sub_batch.cost * count // total
        left -= cost
        parts.append((route.segments[number], sub_batch.part(taken.slice(at, count), rows[at:stop], cost)))
        at = stop
    return parts


def _split_rows(sub_batch: SubBatch, batch: RowBatch, route: RoutingTable) -> list[tuple[Segment, SubBatch]]:
    """Splits a few rows in a loop, because a call of numpy or Arrow takes as long as several rows."""
    targets: dict[int, list[int]] = {}
    for row, partition in enumerate(batch.partitions):
        targets.setdefault(route.table.item(partition), []).append(row)
    if len(targets) == 1:
        return [(route.segments[number], sub_batch) for number in targets]
    parts: list[tuple[Segment, SubBatch]] = []
    left, total = sub_batch.cost, batch.num_rows
    for number, rows in targets.items():
        left -= (cost := sub_batch.cost * len(rows) // total)
        indices = np.array(rows) if sub_batch.rows is None else sub_batch.rows[rows]
        parts.append((route.segments[number], sub_batch.part(batch.take(rows), indices, cost)))
    parts[-1][1].cost += left
    return parts


def _split_upload(sub_batch: SubBatch, batch: UploadedRows, route: RoutingTable) -> list[tuple[Segment, SubBatch]]:
    """Splits between partitions of the file. A segment gets several parts if others have partitions between its own."""
    parts: list[tuple[Segment, SubBatch]] = []
    left = sub_batch.cost
    for number, part in batch.runs(route.table[batch.partitions]):
        cost = left if part.stop == batch.stop else sub_batch.cost * (part.stop - part.first) // len(batch.partitions)
        left -= cost
        rows = np.arange(part.first, part.stop)
        parts.append((route.segments[number], sub_batch.part(part, rows, cost)))
    return parts
