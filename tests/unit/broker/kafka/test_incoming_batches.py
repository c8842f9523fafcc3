"""A batch of Kafka becomes the same rows, whether the log keeps them as lists or as an Arrow batch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from smq_broker.kafka.partitions.rows import incoming_batch
from smq_broker.kafka.records.batch_header import parse_batch
from smq_broker.rows.blocks import COPY_BELOW_BYTES, ArrowBlock, Block
from smq_broker.rows.payloads import Payload
from smq_broker.rows.small_batches import SmallBatch
from smq_core.model.kafka_producers import KafkaBatchId
from smq_core.model.keyspace import Partitioner
from smq_core.replica.log_entries import IncomingBatch
from smq_proto.wire import MAX_SMALL_BATCH_ROWS
from smq_storage.chunks.schemas import message_schema
from support.processes.broker import make_topic

Record = tuple[int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
PARTITION = 3
NOW_MS = 1_700_000_000_000
AT_MS = 1_600_000_000_000
TOPIC = make_topic(partitioner=Partitioner.KAFKA, partitions=4)
PLAIN: Record = (AT_MS, None, b"v", [])
KEYED: Record = (AT_MS, b"k", b"v", [])

binary = st.none() | st.binary(max_size=60)
headers = st.lists(st.tuples(st.text(max_size=8), binary), max_size=2)
record = st.tuples(st.integers(0, 4_000_000_000_000), binary, binary, headers)


def incoming(records: Sequence[Record]) -> IncomingBatch:
    builder = DefaultRecordBatchBuilder(2, 0, 0, 7, 1, 11, 1 << 30)
    for number, (timestamp, key, value, more) in enumerate(records):
        builder.append(number, timestamp, key, value, more)
    data = memoryview(bytes(builder.build()))
    return incoming_batch(data, parse_batch(data), PARTITION, TOPIC, now_ms=NOW_MS, max_bytes=1 << 20)


def block_of(batch: IncomingBatch) -> Block:
    assert isinstance(batch.payload, Payload)
    block, first = batch.payload.location
    assert first == 0
    return block


@given(st.lists(record, min_size=1, max_size=20))
@settings(max_examples=100)
def test_the_rows_are_those_of_the_batch(records: list[Record]) -> None:
    batch = incoming(records)
    assert (batch.rows, batch.id) == (len(records), KafkaBatchId(7, 1, 11))
    assert (batch.partition_min, batch.partition_max) == (PARTITION, PARTITION)
    assert batch.partition_rows == ((PARTITION, len(records)),)
    rows = block_of(batch).to_arrow()
    assert rows.schema == message_schema()
    found = [
        (row["partition"], row["timestamp"].timestamp(), row["key"], row["value"], row["headers"])
        for row in rows.to_pylist()
    ]
    assert found == [
        (PARTITION, at / 1000, key, value, [{"key": k, "value": v} for k, v in more] or None)  # type: ignore[operator]
        for at, key, value, more in records
    ]


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        ([PLAIN], SmallBatch),
        ([KEYED] * MAX_SMALL_BATCH_ROWS, SmallBatch),
        ([KEYED] * (MAX_SMALL_BATCH_ROWS + 1), ArrowBlock),
        ([PLAIN, KEYED], ArrowBlock),
        ([(AT_MS, b"k", None, [])], ArrowBlock),
        ([(AT_MS, b"k", b"v", [("h", None)])], ArrowBlock),
        ([(AT_MS, b"k", bytes(COPY_BELOW_BYTES), [])], ArrowBlock),
    ],
    ids=["one", "few", "many", "some with keys", "a null value", "headers", "large"],
)
def test_few_plain_messages_are_lists(records: list[Record], kind: type[Block]) -> None:
    assert isinstance(block_of(incoming(records)), kind)


@pytest.mark.parametrize("records", [1, MAX_SMALL_BATCH_ROWS + 1])
def test_a_message_without_a_time_is_of_now(records: int) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 0, 7, 1, 11, 1 << 30)
    for number in range(records):
        builder.append(number, -1, b"k", b"v", [])
    data = memoryview(bytes(builder.build()))
    batch = incoming_batch(data, parse_batch(data), PARTITION, TOPIC, now_ms=NOW_MS, max_bytes=1 << 20)
    times = block_of(batch).to_arrow().column("timestamp").to_pylist()
    assert {it.timestamp() for it in times} == {NOW_MS / 1000}
