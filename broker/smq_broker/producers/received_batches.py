"""What a frame of a client brings for one segment: sub-batches that share the rows beside it, and references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smq_broker.rows.batches import ENTRY_OVERHEAD_BYTES, size_of_names
from smq_broker.rows.blocks import Block
from smq_broker.rows.payloads import Payload, PayloadSpan
from smq_core.model.reference import Reference
from smq_core.replica.log_entries import BatchId, IncomingBatch
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import reference_from_pb


@dataclass(frozen=True, slots=True)
class ReceivedBatch:
    """A sub-batch. ``rejections`` is how many its producer had got in this session when it sent it.

    ``payload`` is None if the rows are in an upload, to which the incoming batch refers.
    """

    incoming: IncomingBatch
    rejections: int
    payload: Payload | None

    @property
    def uploads(self) -> Reference | tuple[str, ...] | None:
        """What has to be checked before the batch is appended."""
        return self.incoming.reference or self.incoming.large_values or None

    @property
    def spans_to_join(self) -> list[PayloadSpan]:
        """Its rows, if they are in a block that is worth being joined with others."""
        payload = self.payload
        return [(payload, self.incoming.rows)] if payload is not None and payload.location[0].is_small else []


def read_rows(
    sub_batches: Sequence[pb.ProducerFrame.SubBatch], ids: Sequence[BatchId], block: Block, *, counts_partitions: bool
) -> list[ReceivedBatch]:
    """The sub-batches of one segment, in the block that has their rows one after the other.

    ``counts_partitions`` is as in the segment's ReplicaConfig.
    """
    bytes_per_row = block.nbytes / block.num_rows
    received = []
    first = 0
    for sub_batch, id_ in zip(sub_batches, ids, strict=True):
        low, high = block.partition_bounds(first, sub_batch.rows)
        names = tuple(sub_batch.large_values)
        payload = Payload(block, first)
        incoming = IncomingBatch(
            id=id_,
            rows=sub_batch.rows,
            nbytes=int(bytes_per_row * sub_batch.rows) + ENTRY_OVERHEAD_BYTES + size_of_names(names),
            partition_min=low,
            partition_max=high,
            payload=payload,
            large_values=names,
            partition_rows=block.partition_rows(first, sub_batch.rows) if counts_partitions else (),
        )
        received.append(ReceivedBatch(incoming, sub_batch.rejections, payload))
        first += sub_batch.rows
    return received


def read_reference(sub_batch: pb.ProducerFrame.SubBatch, id_: BatchId) -> ReceivedBatch:
    """Rows of an upload, published as one batch."""
    reference = reference_from_pb(sub_batch.reference)
    incoming = IncomingBatch(
        id=id_,
        rows=reference.rows,
        nbytes=ENTRY_OVERHEAD_BYTES,
        partition_min=reference.partition_min,
        partition_max=reference.partition_max,
        payload=None,
        reference=reference,
    )
    return ReceivedBatch(incoming, sub_batch.rejections, None)
