"""Between Kafka's record batches and rows of a topic without a schema."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from smq_broker.kafka.partitions.tail_index import IndexedEntry
from smq_broker.kafka.records.batch_header import BatchHeader
from smq_broker.kafka.records.decoding import DecodedRecords
from smq_broker.kafka.records.encoding import encode_records
from smq_broker.rows.batches import ENTRY_OVERHEAD_BYTES
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import Payload
from smq_core.model.kafka_producers import KafkaBatchId
from smq_core.replica.log_entries import IncomingBatch
from smq_storage.chunks.schemas import HEADERS, TIMESTAMP, message_schema

SCHEMA = message_schema()
US_PER_MS = 1000
NO_TIMESTAMP = -1


def incoming_batch(header: BatchHeader, records: DecodedRecords, partition: int, now_ms: int) -> IncomingBatch:
    """The records of one batch as the log takes them. Those without a timestamp are of now."""
    count = len(records.values)
    times = pc.if_else(pc.equal(records.timestamps, NO_TIMESTAMP), now_ms, records.timestamps)
    timestamps = pc.multiply(times, US_PER_MS).cast(TIMESTAMP)
    columns = [
        pa.array(np.full(count, partition, np.int32)),
        timestamps,
        records.keys,
        records.values,
        records.headers,
    ]
    block = ArrowBlock(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return IncomingBatch(
        id=KafkaBatchId(header.producer_id, header.producer_epoch, header.base_sequence),
        rows=count,
        nbytes=block.nbytes + ENTRY_OVERHEAD_BYTES,
        partition_min=partition,
        partition_max=partition,
        payload=Payload(block),
        partition_rows=((partition, count),),
    )


def rows_of(found: IndexedEntry, partition: int, offset: int) -> pa.RecordBatch:
    """The messages of the partition in this entry, from this Kafka offset on."""
    batch = found.entry.batch
    payload = batch.payload
    assert isinstance(payload, Payload)
    block, first = payload.location
    rows = block.slice(first, batch.rows).to_arrow()
    if len(batch.partition_rows) > 1:
        rows = rows.filter(pc.equal(rows.column(0), partition))
    return rows.slice(max(0, offset - found.offset))


def record_batch(rows: pa.RecordBatch | pa.Table, first_offset: int, epoch: int) -> bytearray:
    """These messages as one record batch of Kafka, with consecutive offsets."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    table = table.select(["timestamp", "key", "value", "headers"]).combine_chunks()
    timestamps, keys, values, headers = (_one(table.column(name)) for name in table.column_names)
    return encode_records(
        first_offset,
        epoch,
        timestamps=pa.array(timestamps_ms(timestamps)),
        keys=keys,
        values=values,
        headers=headers.cast(HEADERS),
    )


def timestamps_ms(timestamps: pa.Array) -> npt.NDArray[np.int64]:
    """Whole milliseconds since 1970, rounded down."""
    return timestamps.cast(pa.int64()).to_numpy(zero_copy_only=False) // US_PER_MS


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
