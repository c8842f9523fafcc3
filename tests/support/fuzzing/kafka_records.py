"""What becomes of a record batch that is accepted: it is written to a file, and read back as another batch."""

from __future__ import annotations

from aiokafka.record.default_records import DefaultRecordBatch

from smq_broker.kafka.partitions.rows import incoming_batch, record_batch
from smq_broker.kafka.records.batch_header import count_records, parse_batch
from smq_broker.kafka.records.errors import RecordError
from smq_broker.rows.payloads import batches_with_append_times
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.keyspace import Partitioner
from smq_core.replica.log_entries import Entry
from smq_storage.chunks.parquet_codec import encode_chunk, read_chunk
from smq_storage.chunks.schemas import chunk_schema
from support.fuzzing.kafka_batches import batch
from support.fuzzing.targets import Target
from support.processes.broker import make_topic

MAX_BYTES = 1 << 20
TOPIC = make_topic(partitioner=Partitioner.KAFKA)


def stored_batches() -> Target:
    return Target("record batches of Kafka in files", batch, store, (RecordError,))


def store(received: bytes) -> None:
    """Raises RecordError if the batch is refused. What is accepted is in a file, and comes back as it was sent."""
    view = memoryview(bytearray(received))
    header = parse_batch(view)
    sent = incoming_batch(view, header, 0, TOPIC, now_ms=1_000, max_bytes=MAX_BYTES)
    assert sent.rows == header.records
    info = ChunkInfo(segment="s-0-1-0", first=0, rows=sent.rows, writer="w", nonce="n")
    file = encode_chunk(batches_with_append_times([_entry(sent)]), info, chunk_schema())
    _, rows = read_chunk(file)
    assert rows.num_rows == header.records
    again = record_batch(rows, 7, 1, None)
    assert count_records(again) == header.records
    assert parse_batch(memoryview(again)).records == header.records
    records = list(DefaultRecordBatch(bytes(again)))
    assert [it.offset for it in records] == list(range(7, 7 + header.records))
    assert [it.value for it in records] == rows.column("value").to_pylist()
    assert [it.key for it in records] == rows.column("key").to_pylist()


def _entry(sent: object) -> Entry:
    return Entry(first=0, batch=sent, appended=0)  # type: ignore[arg-type]
