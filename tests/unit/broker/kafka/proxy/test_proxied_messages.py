"""What the proxy sends to brokers and reads from them is what the listener of a broker reads and sends."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema

from smq_broker.kafka.protocol.codec import decode_request, encode_response
from smq_broker.kafka.protocol.entities import build, encode
from smq_broker.kafka.protocol.fetch_response import (
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
    LeaderEpoch,
    NodeAddress,
)
from smq_broker.kafka.protocol.messages import FETCH, PRODUCE, Api, KafkaRequest, Part, ProtocolError, RequestContext
from smq_broker.kafka.protocol.produce_request import TOPIC_IDS_FROM as PRODUCED_IDS_FROM
from smq_broker.kafka.protocol.produce_request import ProducedPartition, ProducedTopic, ProduceRequest
from smq_broker.kafka.protocol.upstream_codec import (
    decode_fetch_response,
    decode_response,
    encode_produce_request,
    encode_request,
    response_body,
)

METADATA, HEARTBEAT = 3, 12
ID = UUID(int=7)
FLAGS = {
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


async def unused(body: Any, context: RequestContext) -> None:
    raise AssertionError


APIS = {PRODUCE: Api(3, 13, unused), METADATA: Api(0, 13, unused)}
names = st.text(min_size=1, max_size=12)
partitions = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.none() | st.binary(max_size=300)), max_size=4)


def received(parts: list[Part]) -> KafkaRequest:
    frame = memoryview(bytearray(b"".join(parts)))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return decode_request(frame[4:], APIS)


@given(
    st.integers(3, 13),
    st.none() | names,
    st.none() | names,
    st.integers(-1, 1),
    st.integers(0, 2**31 - 1),
    st.lists(st.tuples(names, partitions), max_size=4),
)
@settings(max_examples=100)
def test_a_broker_gets_the_produce_request_of_the_client(
    version: int,
    client: str | None,
    transaction: str | None,
    acks: int,
    timeout_ms: int,
    sent: list[tuple[str, list[tuple[int, bytes | None]]]],
) -> None:
    has_ids = version >= PRODUCED_IDS_FROM
    topics = tuple(
        ProducedTopic(
            "" if has_ids else name,
            ID if has_ids else None,
            tuple(ProducedPartition(number, None if data is None else memoryview(data)) for number, data in own),
        )
        for name, own in sent
    )
    request = ProduceRequest(transaction, acks, timeout_ms, topics)
    found = received(encode_request(PRODUCE, version, 9, client, encode_produce_request(request, version)))
    assert (found.correlation_id, found.client_id, found.version) == (9, client, version)
    assert found.body == request


@pytest.mark.parametrize("version", range(14))
def test_a_broker_gets_other_requests_as_they_are(version: int) -> None:
    body = build(load_request_schema(METADATA, version), {"topics": ({"name": "t", "topic_id": ID},)} | FLAGS)
    assert received(encode_request(METADATA, version, 3, "ü", (encode(body),))).body == body


@pytest.mark.parametrize("version", range(4, 18))
def test_a_fetch_response_of_a_broker_is_read_without_its_nodes(version: int) -> None:
    has_ids = version >= TOPIC_IDS_FROM
    own = [
        FetchedPartition(
            partition=number,
            error_code=number,
            high_watermark=2**40,
            last_stable_offset=5,
            log_start_offset=7 if version >= 5 else -1,
            current_leader=LeaderEpoch(4, 2),
            preferred_read_replica=3,
            records=(b"abc", b"def") if number else (),
        )
        for number in range(3)
    ]
    topic = FetchedTopic("" if has_ids else "t", ID if has_ids else UUID(int=0), own)
    sent = FetchResponse(topics=[topic], throttle_ms=8, error_code=0, session_id=0, nodes=[NodeAddress(1, "h", 2)])
    frame = b"".join(
        encode_response(KafkaRequest(api_key=FETCH, version=version, correlation_id=3, client_id=None, body=None), sent)
    )
    body = response_body(memoryview(frame)[4:], FETCH, version)
    found = decode_fetch_response(body, version)
    assert (found.throttle_ms, found.nodes) == (8, ())
    (read,) = found.topics
    assert (read.name, read.topic_id) == (topic.name, topic.topic_id)
    for had, has in zip(own, read.partitions, strict=True):
        assert b"".join(has.records) == b"".join(had.records)
        assert has.current_leader is None and has.preferred_read_replica == -1, "the client knows no such node"
        same = ("partition", "error_code", "high_watermark", "last_stable_offset", "log_start_offset")
        assert [getattr(has, it) for it in same] == [getattr(had, it) for it in same]


@given(st.integers(4, 17), st.binary(max_size=200))
@settings(max_examples=200)
def test_what_is_no_fetch_response_is_refused(version: int, sent: bytes) -> None:
    try:
        decode_fetch_response(memoryview(sent), version)
    except ProtocolError:
        return


def test_what_is_no_response_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_response(memoryview(b"\0"), HEARTBEAT, 0)
