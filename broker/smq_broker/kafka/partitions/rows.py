"""Between Kafka's record batches and the rows of a topic."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from smq_broker.kafka.partitions.json_rows import json_block, json_messages
from smq_broker.kafka.partitions.tail_index import IndexedEntry
from smq_broker.kafka.records.batch_header import BatchHeader
from smq_broker.kafka.records.decoding import (
    NO_TIMESTAMP,
    DecodedRecords,
    decode_few_records,
    decode_records,
    record_lists,
)
from smq_broker.kafka.records.encoding import encode_records
from smq_broker.rows.batches import ENTRY_OVERHEAD_BYTES
from smq_broker.rows.blocks import ArrowBlock, Block
from smq_broker.rows.payloads import Payload
from smq_broker.rows.small_batches import SmallBatch
from smq_core.model.entities import Topic
from smq_core.model.kafka_producers import KafkaBatchId
from smq_core.replica.log_entries import IncomingBatch
from smq_proto.wire import MAX_SMALL_BATCH_ROWS
from smq_storage.chunks.schemas import HEADERS, TIMESTAMP, has_plain_messages, message_schema

SCHEMA = message_schema()
US_PER_MS = 1000


def incoming_batch(
    data: memoryview, header: BatchHeader, partition: int, topic: Topic, *, now_ms: int, max_bytes: int
) -> IncomingBatch:
    """The records of a batch as the log of the topic takes them. Those without a timestamp are of now.

    Raises RecordError if they cannot be decoded, are no rows of the topic, or have more than ``max_bytes``.
    """
    if topic.spec.schema:
        block: Block = json_block(record_lists(data, header, max_bytes), topic, partition, now_ms)
    else:
        block = _block(data, header, partition, now_ms, max_bytes)
    count = block.num_rows
    return IncomingBatch(
        id=KafkaBatchId(header.producer_id, header.producer_epoch, header.base_sequence),
        rows=count,
        nbytes=block.nbytes + ENTRY_OVERHEAD_BYTES,
        partition_min=partition,
        partition_max=partition,
        payload=Payload(block),
        partition_rows=((partition, count),),
    )


def _block(data: memoryview, header: BatchHeader, partition: int, now_ms: int, max_bytes: int) -> Block:
    """The rows as lists if they are few, because each call of Arrow costs more than they do."""
    if header.records > MAX_SMALL_BATCH_ROWS:
        return _arrow_block(decode_records(data, header, max_bytes), partition, now_ms)
    records = decode_few_records(data, header, max_bytes)
    if any(records.headers) or None in records.values or records.keys.count(None) not in (0, header.records):
        return _arrow_block(records.to_arrow(), partition, now_ms)
    times = [(now_ms if it == NO_TIMESTAMP else it) * US_PER_MS for it in records.timestamps]
    keys = cast("list[bytes]", records.keys) if records.keys[0] is not None else ()
    small = SmallBatch([partition] * header.records, times, keys, cast("list[bytes]", records.values))
    return small if small.is_small else ArrowBlock(small.to_arrow())


def _arrow_block(records: DecodedRecords, partition: int, now_ms: int) -> Block:
    times = pc.if_else(pc.equal(records.timestamps, NO_TIMESTAMP), now_ms, records.timestamps)
    columns = [
        pa.array(np.full(len(times), partition, np.int32)),
        pc.multiply(times, US_PER_MS).cast(TIMESTAMP),
        records.keys,
        records.values,
        records.headers,
    ]
    return ArrowBlock(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


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


def record_batch(rows: pa.Table, first_offset: int, epoch: int, key: str | None) -> bytearray:
    """These messages as one record batch of Kafka, with consecutive offsets. ``key`` is the topic's key column.

    Raises InvalidRequest if JSON cannot have a row.
    """
    table = rows if has_plain_messages(rows.schema) else json_messages(rows, key)
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
