"""Kafka's clients read rows of a topic with a schema as JSON. What they write becomes such rows, or is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from smq_broker.kafka.partitions.rows import incoming_batch, record_batch
from smq_broker.kafka.records.batch_header import parse_batch
from smq_broker.kafka.records.decoding import decode_few_records
from smq_broker.kafka.records.errors import InvalidRecord
from smq_broker.rows.payloads import Payload
from smq_core.model.entities import Column
from smq_core.model.keyspace import Partitioner
from smq_storage.chunks.schemas import chunk_schema, message_schema
from support.processes.broker import make_topic

COLUMNS = (
    Column("id", "int64"),
    Column("name", "string", nullable=True),
    Column("price", "decimal128(10, 2)", nullable=True),
    Column("day", "date", nullable=True),
    Column("seen", "timestamp[s, UTC]", nullable=True),
    Column("blob", "binary", nullable=True),
    Column("tags", "list<string>", nullable=True),
    Column("at", "struct<x: float64, y: uint32>", nullable=True),
)
TOPIC = make_topic(partitioner=Partitioner.KAFKA, partitions=4, schema=COLUMNS, key="id")
KEYLESS = make_topic(partitioner=Partitioner.KAFKA, partitions=4, schema=COLUMNS)
FULL: dict[str, Any] = {
    "id": 7,
    "name": "Jürgen",
    "price": Decimal("1.50"),
    "day": date(2024, 5, 1),
    "seen": datetime(2024, 5, 1, 12, tzinfo=UTC),
    "blob": b"\xff\x00",
    "tags": ["a", "b"],
    "at": {"x": 0.5, "y": 4_000_000_000},
}
BARE = dict.fromkeys(FULL) | {"id": 8}
FULL_JSON = (
    '{"id": 7, "name": "Jürgen", "price": "1.50", "day": "2024-05-01", "seen": "2024-05-01T12:00:00.000000Z", '
    '"blob_base64": "/wA=", "tags": ["a", "b"], "at": {"x": 0.5, "y": 4000000000}}'
).encode()
AT_MS = 1_700_000_000_000
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def produced(records: Sequence[Record], topic: Any = TOPIC) -> pa.RecordBatch:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number, (key, value, headers) in enumerate(records):
        builder.append(number, AT_MS, key, value, headers)
    data = memoryview(bytes(builder.build()))
    batch = incoming_batch(data, parse_batch(data), 3, topic, now_ms=0, max_bytes=1 << 20)
    assert isinstance(batch.payload, Payload)
    return batch.payload.location[0].to_arrow()


def fetched(rows: pa.Table, key: str | None = "id") -> list[tuple[int, bytes | None, bytes | None, Any]]:
    data = memoryview(record_batch(rows, 5, 2, key))
    header = parse_batch(data)
    assert (header.base_offset, header.leader_epoch) == (5, 2)
    found = decode_few_records(data, header._replace(base_offset=0), 1 << 20)
    return list(zip(*found, strict=True))


def stored(rows: Sequence[dict[str, Any]], *, in_chunk: bool = False) -> pa.Table:
    common = {"partition": 3, "timestamp": AT_MS * 1000, "headers": [("h", b"1")]} | (
        {"appended": 1} if in_chunk else {}
    )
    schema = chunk_schema(COLUMNS) if in_chunk else message_schema(COLUMNS)
    return pa.Table.from_pylist([row | common for row in rows], schema)


@pytest.mark.parametrize("in_chunk", [False, True])
def test_rows_are_read_as_json(in_chunk: bool) -> None:
    first, second = fetched(stored([FULL, BARE], in_chunk=in_chunk))
    assert first == (AT_MS, b"7", FULL_JSON, [("h", b"1")])
    assert (
        second[1] == b"8" and second[2] is not None and second[2].startswith(b'{"id": 8, "name": null, "price": null')
    )


def test_rows_of_a_topic_without_a_key_have_none() -> None:
    assert fetched(stored([FULL]), None)[0][1] is None


def test_what_was_read_is_written_as_the_same_rows() -> None:
    records: list[Record] = [(key, value, headers or []) for _, key, value, headers in fetched(stored([FULL, BARE]))]
    assert pa.Table.from_batches([produced(records)]).equals(stored([FULL, BARE]))


def test_absent_columns_are_null_and_a_record_needs_no_key() -> None:
    (row,) = produced([(None, b'{"id": 9}', [])]).to_pylist()
    assert (row["id"], row["name"], row["headers"], row["partition"]) == (9, None, None, 3)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ((None, b'{"id": "x"}', []), "id"),
        ((None, b'{"id": 9223372036854775808}', []), "id"),
        ((None, b'{"name": "n"}', []), "id"),
        ((None, b'{"id": 1, "price": 1.234}', []), "price"),
        ((None, b'{"id": 1, "id": 2}', []), "occurs twice"),
        ((None, b'{"id": 1, "other": 2}', []), "no column other"),
        ((None, b'{"id": 1, "timestamp": 2}', []), "belong to the record"),
        ((None, b"[1]", []), "no JSON object"),
        ((None, b'{"id": 1', []), "no JSON"),
        ((None, b"\xff", []), "UTF-8"),
        ((None, None, []), "without a value"),
        ((b"2", b'{"id": 1}', []), "its key is not that of its column id"),
    ],
)
def test_what_is_no_row_is_refused_with_its_place_and_the_reason(record: Record, reason: str) -> None:
    with pytest.raises(InvalidRecord) as refused:
        produced([(b"1", b'{"id": 1}', []), record])
    assert refused.value.index == 1 and reason in refused.value.message


def test_a_key_that_the_log_would_lose_is_refused() -> None:
    assert produced([(None, b'{"id": 1}', [])], KEYLESS).num_rows == 1
    with pytest.raises(InvalidRecord, match="the topic has no key"):
        produced([(b"1", b'{"id": 1}', [])], KEYLESS)
