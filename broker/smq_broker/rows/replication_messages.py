"""Messages between primary and follower: a protobuf header and the rows of all entries.

The rows are an Arrow batch beside the header, or a small batch in it. The journal keeps the same bytes.
"""

from __future__ import annotations

import pyarrow as pa

from smq_broker.rows.batches import ENTRY_OVERHEAD_BYTES, size_of_names
from smq_broker.rows.blocks import Block
from smq_broker.rows.payloads import block_of, split_block
from smq_core.errors import InvalidRequest
from smq_core.model.kafka_producers import KafkaBatchId
from smq_core.replica.log_entries import BatchId, Entry, IncomingBatch, ReplicationMessage
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import (
    kafka_producers_from_pb,
    kafka_producers_to_pb,
    partition_offsets_from_pb,
    partition_offsets_to_pb,
    partition_rows_from_pb,
    partition_rows_to_pb,
    producer_from_pb,
    producer_to_pb,
    reference_from_pb,
    reference_to_pb,
)


def encode_message(message: ReplicationMessage, empty: pa.RecordBatch) -> tuple[bytes, pa.RecordBatch | None]:
    """The header, and the batch beside it: None if the header has the rows, or if there are no entries.

    ``empty`` is the batch of entries with references.
    """
    block = block_of(message.entries, empty) if message.entries else None
    small_batch = None if block is None else block.to_pb()
    header = pb.ReplicationBatch(
        base_offset=message.base_offset,
        entries=[_encode_entry(entry) for entry in message.entries],
        watermark=message.watermark,
        chain_end=message.chain_end,
        credit=message.credit,
        small_batch=small_batch,
    )
    return header.SerializeToString(), None if block is None or small_batch is not None else block.to_arrow()


def decode_entries(header: pb.ReplicationBatch, block: Block) -> tuple[Entry, ...]:
    """The entries of a message, whose payloads share the block. Raises InvalidRequest if their rows do not match.

    Entries with references have neither rows in the batch nor a payload.
    """
    rows = [entry.rows for entry in header.entries if not entry.HasField("reference")]
    if sum(rows) != block.num_rows or not all(entry.rows for entry in header.entries):
        raise InvalidRequest(f"entries with {sum(rows)} rows came with a batch of {block.num_rows}")
    payloads = iter(split_block(block, rows))
    bytes_per_row = block.nbytes / block.num_rows if rows else 0.0
    entries = []
    first = header.base_offset
    for entry in header.entries:
        reference = reference_from_pb(entry.reference) if entry.HasField("reference") else None
        row_bytes = int(bytes_per_row * entry.rows) if reference is None else 0
        large_values = tuple(entry.large_values)
        incoming = IncomingBatch(
            id=_batch_id(entry),
            rows=entry.rows,
            nbytes=row_bytes + ENTRY_OVERHEAD_BYTES + size_of_names(large_values),
            partition_min=entry.partition_min,
            partition_max=entry.partition_max,
            payload=next(payloads) if reference is None else None,
            reference=reference,
            large_values=large_values,
            partition_rows=partition_rows_from_pb(entry.partition_rows),
        )
        inherited = None
        if entry.HasField("inherited"):
            inherited = {name: producer_from_pb(state) for name, state in entry.inherited.producers.items()}
        partition_starts = None
        if entry.HasField("partition_starts"):
            partition_starts = partition_offsets_from_pb(entry.partition_starts)
        entries.append(
            Entry(
                first=first,
                batch=incoming,
                appended=entry.appended,
                forgotten=tuple(entry.forgotten),
                inherited=inherited,
                partition_starts=partition_starts,
                inherited_kafka_producers=kafka_producers_from_pb(entry.inherited_kafka_producers) or None,
            )
        )
        first += entry.rows
    return tuple(entries)


def _batch_id(entry: pb.ReplicationBatch.Entry) -> BatchId | KafkaBatchId:
    if entry.HasField("kafka_batch"):
        kafka = entry.kafka_batch
        return KafkaBatchId(kafka.producer_id, kafka.epoch, kafka.sequence)
    return BatchId(entry.producer, entry.epoch, entry.sequence, entry.instance)


def _encode_entry(entry: Entry) -> pb.ReplicationBatch.Entry:
    inherited = None
    if entry.inherited is not None:
        states = {name: producer_to_pb(state) for name, state in entry.inherited.items()}
        inherited = pb.InheritedProducers(producers=states)
    encoded = pb.ReplicationBatch.Entry(
        rows=entry.batch.rows,
        appended=entry.appended,
        partition_min=entry.batch.partition_min,
        partition_max=entry.batch.partition_max,
        forgotten=entry.forgotten,
        inherited=inherited,
        reference=reference_to_pb(entry.batch.reference) if entry.batch.reference is not None else None,
        large_values=entry.batch.large_values,
        partition_rows=partition_rows_to_pb(entry.batch.partition_rows),
        partition_starts=partition_offsets_to_pb(entry.partition_starts),
        inherited_kafka_producers=kafka_producers_to_pb(entry.inherited_kafka_producers or {}),
    )
    id_ = entry.batch.id
    if isinstance(id_, KafkaBatchId):
        encoded.kafka_batch.producer_id = id_.producer_id
        encoded.kafka_batch.epoch = id_.epoch
        encoded.kafka_batch.sequence = id_.sequence
    else:
        encoded.producer, encoded.epoch, encoded.sequence, encoded.instance = id_
    return encoded
