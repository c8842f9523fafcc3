"""What Kafka clients send, and the functions that read it."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c

from smq_broker.kafka.protocol.api_versions import with_api_versions
from smq_broker.kafka.protocol.codec import decode_request
from smq_broker.kafka.protocol.messages import API_VERSIONS, FETCH, PRODUCE, Api, ProtocolError, RequestContext
from smq_broker.kafka.records.batch_header import CRC_END, parse_batch
from smq_broker.kafka.records.decoding import decode_records
from smq_broker.kafka.records.encoding import encode_records
from smq_broker.kafka.records.errors import RecordError
from smq_broker.kafka.transport.frames import FrameReader
from smq_broker.kafka.transport.limits import KafkaLimits
from support.fuzzing.targets import Target, data_target
from support.kafka_socket import request_frame

METADATA, JOIN_GROUP = 3, 11


async def _unused(body: Any, context: RequestContext) -> None: ...


APIS = with_api_versions(
    {
        PRODUCE: Api(3, 13, _unused),
        FETCH: Api(4, 17, _unused),
        METADATA: Api(0, 13, _unused),
        JOIN_GROUP: Api(0, 9, _unused),
    }
)
PARTITIONS = [{"index": number, "records": b"records"} for number in range(3)]
REQUESTS = (
    *(
        (
            PRODUCE,
            version,
            {
                "acks": -1,
                "timeout": timedelta(),
                "topic_data": [{"name": "t", "topic_id": None, "partition_data": PARTITIONS}],
            },
        )
        for version in (3, 9, 13)
    ),
    (METADATA, 1, {"topics": [{"name": "a"}, {"name": "b"}]}),
    (
        METADATA,
        12,
        {"topics": [{"name": "a", "topic_id": None}], "include_topic_authorized_operations": False},
    ),
    (API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"}),
    (
        JOIN_GROUP,
        7,
        {
            "group_id": "g",
            "session_timeout": timedelta(),
            "rebalance_timeout": timedelta(),
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"m"}],
        },
    ),
)


def kafka_parsers() -> list[Target]:
    frames = [request_frame(key, version, 1, values) for key, version, values in REQUESTS]
    return [
        data_target(
            "requests of Kafka",
            [it[4:] for it in frames],
            lambda it: decode_request(memoryview(bytearray(it)), APIS),
            ProtocolError,
        ),
        data_target("record batches of Kafka", _record_batches(), _read_batch, RecordError),
        data_target("frames of Kafka", [b"".join(frames), struct.pack(">i", 1 << 30)], _read_frames, ProtocolError),
    ]


def _read_frames(received: bytes) -> None:
    reader = FrameReader(KafkaLimits())
    for start in range(0, len(received), 50):
        reader.feed(received[start : start + 50])
        while (size := reader.next_size()) is not None and (frame := reader.take(size)) is not None:
            assert len(frame) == size


def _record_batches() -> list[bytes]:
    """One for each compression."""
    batches = []
    for compression in range(5):
        builder = DefaultRecordBatchBuilder(2, compression, 0, 1, 0, 0, 1 << 20)
        for number in range(20):
            builder.append(number, 1_700_000_000_000 + number, b"key", b"value" * 20, [("h", b"1"), ("i", None)])
        batches.append(bytes(builder.build()))
    return batches


def _read_batch(received: bytes) -> None:
    """With the right length and CRC, so that some get past the first checks. What is accepted can be kept and sent."""
    batch = bytearray(received)
    if len(batch) > CRC_END:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">I", batch, CRC_END - 4, crc32c(batch[CRC_END:]))
    view = memoryview(batch)
    decoded = decode_records(view, parse_batch(view), 1 << 20)
    again = memoryview(encode_records(0, 0, **decoded._asdict()))
    assert all(map(lambda one, other: one.equals(other), decode_records(again, parse_batch(again), 1 << 21), decoded))
