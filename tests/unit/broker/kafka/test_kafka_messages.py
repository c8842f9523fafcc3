"""Requests and responses of Produce and Fetch are on the wire as kio has them. Each request is decoded or refused."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from smq_broker.kafka.protocol.api_versions import with_api_versions
from smq_broker.kafka.protocol.codec import decode_request, encode_response
from smq_broker.kafka.protocol.entities import build, encode
from smq_broker.kafka.protocol.fetch_response import (
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
    LeaderEpoch,
    NodeAddress,
)
from smq_broker.kafka.protocol.messages import (
    API_VERSIONS,
    FETCH,
    PRODUCE,
    Api,
    ClientConnection,
    KafkaRequest,
    ProtocolError,
    RequestContext,
)
from smq_broker.kafka.protocol.produce_request import MAX_PARTITIONS, ProduceRequest
from smq_broker.kafka.protocol.produce_response import (
    AppendedPartition,
    AppendedTopic,
    ProduceResponse,
    RecordFailure,
)
from support.kafka_socket import request_frame

METADATA = 3
TOPIC_ID = UUID(int=7)


async def unused(body: Any, context: RequestContext) -> None:
    raise AssertionError


APIS = with_api_versions(
    {
        PRODUCE: Api(3, 13, unused),
        FETCH: Api(4, 18, unused),
        METADATA: Api(0, 13, unused),
    }
)


def decode(frame: bytes) -> KafkaRequest:
    return decode_request(memoryview(bytearray(frame))[4:], APIS)


def reason(frame: bytes) -> str:
    with pytest.raises(ProtocolError) as raised:
        decode(frame)
    return raised.value.reason


names = st.text(min_size=0, max_size=12)
records = st.none() | st.binary(max_size=300)
produced = st.lists(
    st.tuples(names, st.lists(st.tuples(st.integers(0, 2**31 - 1), records), max_size=4)),
    max_size=4,
)


@given(
    st.integers(3, 13), st.none() | names, st.integers(-1, 1), st.integers(-(2**31), 2**31 - 1), produced, st.binary()
)
@settings(max_examples=100)
def test_a_produce_request_is_decoded_as_kio_does(
    version: int,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: list[tuple[str, list[tuple[int, bytes | None]]]],
    junk: bytes,
) -> None:
    values = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": timedelta(milliseconds=timeout_ms),
        "topic_data": [
            {
                "name": name,
                "topic_id": TOPIC_ID,
                "partition_data": [{"index": index, "records": data} for index, data in partitions],
            }
            for name, partitions in topics
        ],
    }
    # Kafka ignores what follows a request in its frame.
    found = decode(request_frame(PRODUCE, version, 5, values) + junk)
    assert (found.version, found.correlation_id, found.client_id) == (version, 5, "test")
    body: ProduceRequest = found.body
    assert (body.transactional_id, body.acks, body.timeout_ms) == (transactional_id, acks, timeout_ms)
    assert [(it.name, it.topic_id) for it in body.topics] == [
        ("", TOPIC_ID) if version >= 13 else (name, None) for name, _ in topics
    ]
    assert [
        [(it.partition, None if it.records is None else bytes(it.records)) for it in topic.partitions]
        for topic in body.topics
    ] == [partitions for _, partitions in topics]


@given(st.binary(max_size=40), st.integers(0, 5))
def test_tagged_fields_that_nobody_knows_are_left_out(value: bytes, number: int) -> None:
    tags = bytes([number]) + b"".join(bytes([it, len(value)]) + value for it in range(number))
    partition = struct.pack(">i", 4) + b"\x03ab" + tags
    topic = b"\x02t" + b"\x02" + partition + tags
    body = b"\0" + struct.pack(">hi", -1, 9) + b"\x02" + topic + tags
    header = struct.pack(">hhih", PRODUCE, 9, 1, -1) + tags
    (found,) = decode(b"size" + header + body).body.topics
    ((index, data),) = found.partitions
    assert (found.name, index, bytes(data or b"")) == ("t", 4, b"ab")


def test_records_are_a_view_of_the_frame_that_can_be_written() -> None:
    partition = {"index": 0, "records": b"12345678batch"}
    topic = {"name": "t", "partition_data": [partition]}
    frame = bytearray(
        request_frame(PRODUCE, 9, 1, {"acks": 1, "timeout": timedelta(), "topic_data": [topic]}),
    )
    view = decode_request(memoryview(frame)[4:], APIS).body.topics[0].partitions[0].records
    assert view is not None
    view[:8] = b"offset=7"
    assert b"offset=7batch" in frame


@pytest.mark.parametrize("topics", [MAX_PARTITIONS + 1, 1])
def test_a_request_of_millions_of_tiny_partitions_is_refused(topics: int) -> None:
    partitions = 2 * MAX_PARTITIONS if topics == 1 else 0
    topic = struct.pack(">hi", 0, partitions) + struct.pack(">ii", 0, -1) * partitions
    body = struct.pack(">hhii", -1, 1, 0, topics) + topic * topics
    assert reason(b"size" + struct.pack(">hhih", PRODUCE, 3, 1, -1) + body) == "malformed"


leaders = st.none() | st.builds(LeaderEpoch, st.integers(0, 99), st.integers(0, 99))
offsets = st.integers(-1, 2**63 - 1)
fetched_partitions = st.builds(
    FetchedPartition,
    partition=st.integers(0, 1023),
    error_code=st.sampled_from([0, 1, 6]),
    high_watermark=offsets,
    last_stable_offset=offsets,
    log_start_offset=offsets,
    current_leader=leaders,
    preferred_read_replica=st.integers(-1, 9),
    records=st.lists(st.binary(max_size=200), max_size=3),
)
fetched = st.builds(
    FetchResponse,
    topics=st.lists(
        st.builds(FetchedTopic, names, st.uuids(), st.lists(fetched_partitions, max_size=3)),
        max_size=3,
    ),
    throttle_ms=st.integers(0, 9999),
    error_code=st.sampled_from([0, 70]),
    session_id=st.integers(0, 2**31 - 1),
    nodes=st.lists(
        st.builds(NodeAddress, st.integers(0, 9), names, st.integers(0, 65535), st.none() | names), max_size=3
    ),
)


def kio_values(response: FetchResponse) -> dict[str, Any]:
    def partition(it: FetchedPartition) -> dict[str, Any]:
        values = {
            "partition_index": it.partition,
            "error_code": ErrorCode(it.error_code),
            "high_watermark": it.high_watermark,
            "last_stable_offset": it.last_stable_offset,
            "log_start_offset": it.log_start_offset,
            "aborted_transactions": (),
            "preferred_read_replica": it.preferred_read_replica,
            "records": b"".join(map(bytes, it.records)),
        }
        return values if it.current_leader is None else values | {"current_leader": it.current_leader._asdict()}

    return {
        "throttle_time": timedelta(milliseconds=response.throttle_ms),
        "error_code": ErrorCode(response.error_code),
        "session_id": response.session_id,
        "responses": [
            {"topic": it.name, "topic_id": it.topic_id, "partitions": list(map(partition, it.partitions))}
            for it in response.topics
        ],
        "node_endpoints": [it._asdict() for it in response.nodes],
    }


@given(st.integers(4, 18), fetched)
@settings(max_examples=100)
def test_a_fetch_response_is_encoded_as_kio_does(version: int, response: FetchResponse) -> None:
    expected = encode(build(load_response_schema(FETCH, version), kio_values(response)))
    assert b"".join(response.encode(version)) == expected


appended = st.builds(
    ProduceResponse,
    st.lists(
        st.builds(
            AppendedTopic,
            names,
            st.uuids(),
            st.lists(
                st.builds(
                    AppendedPartition,
                    st.integers(0, 1023),
                    st.sampled_from([0, 6, 87]),
                    offsets,
                    st.lists(st.builds(RecordFailure, st.integers(0, 99), names), max_size=2),
                    st.none() | names,
                ),
                max_size=3,
            ),
        ),
        max_size=3,
    ),
    st.integers(0, 9999),
)


@given(st.integers(3, 13), appended)
@settings(max_examples=100)
def test_a_produce_response_is_encoded_as_kio_does(version: int, response: ProduceResponse) -> None:
    def partition(it: AppendedPartition) -> dict[str, Any]:
        return {
            "index": it.partition,
            "error_code": ErrorCode(it.error_code),
            "base_offset": it.base_offset,
            "record_errors": [
                {"batch_index": failure.record, "batch_index_error_message": failure.message}
                for failure in it.record_errors
            ],
            "error_message": it.error_message,
        }

    values = {
        "throttle_time": timedelta(milliseconds=response.throttle_ms),
        "responses": [
            {"name": it.name, "topic_id": it.topic_id, "partition_responses": list(map(partition, it.partitions))}
            for it in response.topics
        ],
    }
    expected = encode(build(load_response_schema(PRODUCE, version), values))
    assert b"".join(response.encode(version)) == expected


def test_records_are_sent_as_they_are() -> None:
    batches = [bytearray(b"first"), memoryview(b"second")]
    partition = FetchedPartition(partition=0, records=batches)
    response = FetchResponse(topics=[FetchedTopic("t", TOPIC_ID, [partition])])
    parts = response.encode(17)
    assert [it for it in parts if it is batches[0] or it is batches[1]] == batches


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_lists_the_table(version: int) -> None:
    values = {"client_software_name": "librdkafka", "client_software_version": "2.16.0"}
    request = decode(request_frame(API_VERSIONS, version, 3, values))
    connection = ClientConnection("127.0.0.1:1")
    answer = await answered(request, connection)
    assert (answer.correlation_id, answer.body.error_code) == (3, ErrorCode.none)
    assert [(it.api_key, it.min_version, it.max_version) for it in answer.body.api_keys] == [
        (PRODUCE, 0, 13),  # an old librdkafka compresses only if this range begins with 0
        (FETCH, 4, 18),
        (METADATA, 0, 13),
        (API_VERSIONS, 0, 4),
    ]
    assert connection.software == ("librdkafka 2.16.0" if version >= 3 else "")


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    request = decode(b"size" + struct.pack(">hhi", API_VERSIONS, 99, 8) + b"whatever")
    answer = await answered(request, ClientConnection(""))
    assert (answer.correlation_id, answer.body.error_code) == (8, ErrorCode.unsupported_version)
    assert (API_VERSIONS, 0, 4) in [(it.api_key, it.min_version, it.max_version) for it in answer.body.api_keys]


async def test_a_software_name_that_would_forge_a_line_of_the_log_is_refused() -> None:
    values = {"client_software_name": "a\nb", "client_software_version": "1"}
    connection = ClientConnection("")
    answer = await answered(decode(request_frame(API_VERSIONS, 3, 1, values)), connection)
    assert (answer.body.error_code, connection.software) == (ErrorCode.invalid_request, "")


class Answer:
    def __init__(self, request: KafkaRequest, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        frame = b"".join(parts)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        schema = load_response_schema(request.api_key, request.version)
        header, header_size = entity_reader(schema.__header_schema__)(frame, 4)
        self.correlation_id = header.correlation_id
        self.body, body_size = entity_reader(schema)(frame, 4 + header_size)
        assert 4 + header_size + body_size == len(frame)


async def answered(request: KafkaRequest, connection: ClientConnection) -> Answer:
    context = RequestContext(request.client_id, request.version, connection)
    body = await APIS[request.api_key].handler(request.body, context)
    return Answer(request, encode_response(request, body))


def test_values_of_all_versions_become_a_response_of_one() -> None:
    request = decode(request_frame(METADATA, 12, 6, {"topics": [], "include_topic_authorized_operations": False}))
    values = {
        "throttle_time": timedelta(),
        "brokers": [{"node_id": 1, "host": "b", "port": 9, "rack": None}],
        "cluster_id": "c",
        "controller_id": 1,
        "topics": [
            {"error_code": ErrorCode.none, "name": "t", "topic_id": TOPIC_ID, "is_internal": False, "partitions": []},
        ],
    }
    answer = Answer(request, encode_response(request, values))
    assert (answer.correlation_id, answer.body.topics[0].topic_id) == (6, TOPIC_ID)
    old = decode(request_frame(METADATA, 0, 6, {"topics": []}))
    assert Answer(old, encode_response(old, values)).body.topics[0].name == "t"


def test_what_is_no_supported_request_is_refused_with_its_reason() -> None:
    metadata = request_frame(METADATA, 1, 1, {"topics": [{"name": "t"}]})
    assert reason(b"size\0\0\0") == "malformed"
    assert reason(metadata[:-1]) == "malformed"
    assert reason(b"size" + struct.pack(">hhi", 77, 0, 1)) == "unknown_api"
    assert reason(b"size" + struct.pack(">hhi", -1, 0, 1)) == "unknown_api"
    assert reason(b"size" + struct.pack(">hhi", METADATA, 14, 1)) == "unsupported_version"
    assert reason(b"size" + struct.pack(">hhi", PRODUCE, 2, 1)) == "unsupported_version"
    # Two thousand million topics in four bytes
    assert reason(b"size" + struct.pack(">hhihi", METADATA, 1, 1, -1, 2**31 - 1)) == "malformed"


def test_every_version_of_the_table_can_be_read() -> None:
    for key, api in APIS.items():
        for version in range(api.min_version, api.max_version + 1):
            load_request_schema(key, version)
            load_response_schema(key, version)


@pytest.mark.parametrize(
    ("api_key", "version", "values", "name"),
    [
        (2, 1, {"replica_id": -1, "topics": [{"name": "t", "partitions": []}]}, "partitions"),
        (2, 1, {"replica_id": -1, "topics": []}, "topics"),
    ],
)
def test_null_in_place_of_an_array_is_refused(api_key: int, version: int, values: dict[str, Any], name: str) -> None:
    frame = request_frame(api_key, version, 1, values)
    apis = with_api_versions({api_key: Api(0, version, _unused)})
    assert decode_request(memoryview(bytearray(frame[4:])), apis).body.topics is not None
    with pytest.raises(ProtocolError, match=f"{name} is null"):
        decode_request(memoryview(bytearray(frame[4:-4] + b"\xff\xff\xff\xff")), apis)


async def _unused(body: Any, context: RequestContext) -> None: ...
