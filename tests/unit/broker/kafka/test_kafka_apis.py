"""Every API answers in every version that it advertises, and names topics and nodes as clients know them."""

from __future__ import annotations

import asyncio
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map

from smq_broker.kafka.apis.error_codes import error_code_of
from smq_broker.kafka.cluster import KafkaCluster, node_id
from smq_broker.kafka.executor import LoopCalls
from smq_broker.kafka.protocol.api_versions import with_api_versions
from smq_broker.kafka.protocol.codec import encode_response
from smq_broker.kafka.protocol.entities import build
from smq_broker.kafka.protocol.messages import FETCH, PRODUCE, ApiTable, ClientConnection, KafkaRequest, RequestContext
from smq_broker.kafka.protocol.produce_request import ProducedPartition, ProducedTopic, ProduceRequest
from smq_broker.kafka.service import INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH, api_table
from smq_broker.kafka.topics import KafkaTopics, topic_id
from smq_broker.segments.registry import SegmentRegistry
from smq_core.errors import SegmentSealed, SequenceGap, SmqError, UnknownTopic
from smq_core.kafka_groups.requests import GroupSettings
from smq_core.model.entities import Layout, Phase, Replica, Segment, Topic, TopicSpec
from smq_core.model.keyspace import KeyRange, Partitioner
from support.in_memory.kafka_callers import SecureListenerParts

UID = "6f1ed002-ab55-4d8c-9c7e-3f0d8b0a5a11"
TOPIC = Topic("default/events", UID, TopicSpec(partitions=4, partitioner=Partitioner.KAFKA))
HALVES = (KeyRange(0, 2), KeyRange(2, 4))
SEGMENTS = tuple(
    Segment(
        name=f"events-{range_.start}-{range_.stop}-{number}",
        range=range_,
        number=number,
        phase=Phase.OPEN,
        replicas=(Replica(f"b{number}", f"i{number}", f"h:{number}"), Replica("b9", "i9", "h:9")),
        predecessors=(),
        durability=TOPIC.spec.durability,
    )
    for number, range_ in enumerate(HALVES)
)
LAYOUT = Layout(topic=TOPIC.name, uid=UID, partitions=4, segments=SEGMENTS)
ADDRESSES = {"i0": "a.example:9092", "i1": "[::1]:9093"}


class KnownTopics:
    """In place of a locator: one topic."""

    def find(self, name: str, *, fresh: bool = False) -> tuple[Topic, Layout]:
        if name != TOPIC.name:
            raise UnknownTopic(f"there is no topic {name}", topic=name)
        return TOPIC, LAYOUT


@pytest.fixture
def apis() -> ApiTable:
    return api_table(
        cluster=KafkaCluster(
            cluster_id="c", incarnation="i0", address=lambda: ADDRESSES["i0"], listeners=lambda: ADDRESSES
        ),
        registry=SegmentRegistry("i0", on_drain=lambda: None),
        store=None,  # type: ignore[arg-type]
        topics=KafkaTopics(KnownTopics(), lambda: [TOPIC.name, "team-a/other"], lambda _: None),  # type: ignore[arg-type]
        calls=LoopCalls(asyncio.new_event_loop()),
        max_batch=1 << 20,
        group_settings=GroupSettings(),
        admin=None,
    )


def request_of(api_key: int, version: int, **values: Any) -> Any:
    return build(load_request_schema(api_key, version), values)


def answer_of(apis: ApiTable, api_key: int, version: int, body: Any) -> Any:
    """What the handler returns, once it has been encoded in that version."""

    async def call() -> Any:
        context = RequestContext(None, version, ClientConnection("peer:1"))
        return await apis[api_key].handler(body, context)

    answer = asyncio.run(call())
    request = KafkaRequest(api_key=api_key, version=version, correlation_id=1, client_id=None, body=body)
    assert b"".join(encode_response(request, answer))
    return answer


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_nodes_and_leaders(apis: ApiTable, version: int) -> None:
    topics = [{"name": "events", "topic_id": None}, {"name": "absent", "topic_id": None}]
    answer = answer_of(
        apis, METADATA, version, request_of(METADATA, version, topics=topics, **_metadata_flags(version))
    )
    assert [(it["node_id"], it["host"], it["port"]) for it in answer["brokers"]] == [
        (node_id("i0"), "a.example", 9092),
        (node_id("i1"), "::1", 9093),
    ]
    found, absent = answer["topics"]
    assert found["topic_id"] == uuid.UUID(UID)
    leaders = [(it["leader_id"], it["leader_epoch"], it["replica_nodes"]) for it in found["partitions"]]
    # b9 serves no Kafka clients.
    assert leaders == [(node_id("i0"), 0, [node_id("i0")])] * 2 + [(node_id("i1"), 1, [node_id("i1")])] * 2
    assert absent["error_code"].name == "unknown_topic_or_partition" and absent["partitions"] == ()


def _metadata_flags(version: int) -> dict[str, bool]:
    flags = {"include_topic_authorized_operations": False} if version >= 8 else {}
    return flags | ({"include_cluster_authorized_operations": False} if 8 <= version <= 10 else {})


def test_metadata_by_id_and_of_all_topics(apis: ApiTable) -> None:
    every = answer_of(apis, METADATA, 12, request_of(METADATA, 12, topics=None, **_metadata_flags(12)))
    assert [it["name"] for it in every["topics"]] == ["events"], "of the other one only a folder is left"
    wanted = [{"name": None, "topic_id": uuid.UUID(UID)}, {"name": None, "topic_id": uuid.uuid4()}]
    old = answer_of(apis, METADATA, 11, request_of(METADATA, 11, topics=wanted, **_metadata_flags(11)))
    assert [it["name"] for it in old["topics"]] == ["events", ""], "null is not possible before version 12"
    answer = answer_of(apis, METADATA, 12, request_of(METADATA, 12, topics=wanted, **_metadata_flags(12)))
    assert [it["error_code"].name for it in answer["topics"]] == ["none", "unknown_topic_id"]


@pytest.mark.parametrize("name", ["", "..", "a/b", "ü", "x" * 250])
def test_impossible_names_are_refused(apis: ApiTable, name: str) -> None:
    wanted = [{"name": name, "topic_id": None}, {"name": "x" * 249, "topic_id": None}]
    answer = answer_of(apis, METADATA, 12, request_of(METADATA, 12, topics=wanted, **_metadata_flags(12)))
    codes = [it["error_code"].name for it in answer["topics"]]
    assert codes == ["invalid_topic_exception", "unknown_topic_or_partition"]


def test_thousands_of_topics_are_answered_in_their_order(apis: ApiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ones there are not is known from a list. The topic and a name that only it may have are read."""
    read: list[str] = []
    find = KnownTopics.find

    def counting(self: KnownTopics, name: str, *, fresh: bool = False) -> tuple[Topic, Layout]:
        read.append(name)
        return find(self, name, fresh=fresh)

    monkeypatch.setattr(KnownTopics, "find", counting)
    names = [*(f"absent-{number}" for number in range(2500)), "events", "team-a.other"]
    wanted = [{"name": it, "topic_id": None} for it in names]
    answer = answer_of(apis, METADATA, 12, request_of(METADATA, 12, topics=wanted, **_metadata_flags(12)))
    assert [it["name"] for it in answer["topics"]] == names
    assert [it["name"] for it in answer["topics"] if it["error_code"].name == "none"] == ["events"]
    assert set(read) == {TOPIC.name, "team-a/other"}


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_random_and_transactions_refused(apis: ApiTable, version: int) -> None:
    request = request_of(INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout=_ms(1))
    first, second = (answer_of(apis, INIT_PRODUCER_ID, version, request) for _ in range(2))
    assert first["producer_id"] != second["producer_id"] and 0 <= first["producer_id"] < 1 << 63
    request = request_of(INIT_PRODUCER_ID, version, transactional_id="t", transaction_timeout=_ms(1))
    answer = answer_of(apis, INIT_PRODUCER_ID, version, request)
    assert answer["error_code"].name == "transactional_id_authorization_failed"


@pytest.mark.parametrize("version", range(1, 11))
def test_list_offsets_of_partitions_that_are_elsewhere(apis: ApiTable, version: int) -> None:
    partitions = [{"partition_index": it, "timestamp": -1, "current_leader_epoch": -1} for it in (0, 4)]
    topics = [{"name": "events", "partitions": partitions}]
    more = {"isolation_level": 0} if version >= 2 else {}
    more |= {"timeout": _ms(1)} if version >= 10 else {}
    answer = answer_of(
        apis, LIST_OFFSETS, version, request_of(LIST_OFFSETS, version, replica_id=-1, topics=topics, **more)
    )
    codes = [it["error_code"].name for it in answer["topics"][0]["partitions"]]
    assert codes == ["not_leader_or_follower", "unknown_topic_or_partition"]


@pytest.mark.parametrize("version", range(2, 5))
def test_epochs_of_partitions_that_are_elsewhere(apis: ApiTable, version: int) -> None:
    topics = [{"topic": "events", "partitions": [{"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}]}]
    answer = answer_of(
        apis, OFFSET_FOR_LEADER_EPOCH, version, request_of(OFFSET_FOR_LEADER_EPOCH, version, topics=topics)
    )
    assert answer["topics"][0]["partitions"][0]["error_code"].name == "not_leader_or_follower"


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_to_partitions_that_are_elsewhere(apis: ApiTable, version: int) -> None:
    def produce(acks: int, transactional_id: str | None = None) -> list[ErrorCode]:
        named = ("", uuid.UUID(UID)) if version >= 13 else ("events", None)
        body = ProduceRequest(transactional_id, acks, 10, (ProducedTopic(*named, (ProducedPartition(0, None),)),))
        if version >= 13:  # a client has the id from Metadata
            answer_of(apis, METADATA, 12, request_of(METADATA, 12, topics=None, **_metadata_flags(12)))
        answer = answer_of(apis, PRODUCE, version, body)
        return [ErrorCode(it.error_code) for it in answer.topics[0].partitions]

    assert produce(-1) == [ErrorCode.not_leader_or_follower]
    assert produce(2) == [ErrorCode.invalid_required_acks]
    assert produce(-1, "t") == [ErrorCode.transactional_id_authorization_failed]


@pytest.mark.parametrize("version", range(4, 18))
def test_fetch_of_partitions_that_are_elsewhere_answers_at_once(apis: ApiTable, version: int) -> None:
    named = {"topic": "events", "topic_id": uuid.UUID(UID)}
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    body = request_of(
        FETCH,
        version,
        replica_id=-1,
        max_wait=_ms(60_000),
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        topics=[named | {"partitions": partitions}],
        forgotten_topics_data=(),
        rack_id="",
    )
    answer = answer_of(apis, FETCH, version, body)
    assert [it.error_code for topic in answer.topics for it in topic.partitions] == [6]


def _ms(count: int) -> Any:
    from datetime import timedelta

    from kio.static.primitive import i32Timedelta

    return i32Timedelta.parse(timedelta(milliseconds=count))


def test_the_page_lists_the_apis_and_their_versions(apis: ApiTable) -> None:
    page = Path(__file__).parents[4].joinpath("docs/kafka.md").read_text()
    rows = re.findall(r"^\| ([A-Z][\w, ]+) \| ([\d–, ]+) \|", page, re.MULTILINE)
    listed = {}
    for names, ranges in rows:
        for name, range_ in zip(names.split(", "), ranges.split(", "), strict=True):
            low, _, high = range_.partition("–")
            listed[name] = int(low), int(high or low)
    served = with_api_versions({**apis, **SecureListenerParts(TOPIC).login.apis})
    named = {"".join(it.title() for it in api_key_map[key].split("_")): api[:2] for key, api in served.items()}
    assert listed == named


def test_a_uid_that_is_no_uuid_gives_an_id_too() -> None:
    assert topic_id(UID) == uuid.UUID(UID)
    assert topic_id("0123") == topic_id("0123") != topic_id("0124")


def test_errors_get_the_codes_that_make_clients_do_the_right_thing() -> None:
    errors: list[SmqError] = [
        SegmentSealed("s"),
        SequenceGap("g", expected=1),
        UnknownTopic("t", topic="t"),
        SmqError("?"),
    ]
    names = [error_code_of(it).name for it in errors]
    assert names == [
        "not_leader_or_follower",
        "out_of_order_sequence_number",
        "unknown_topic_or_partition",
        "unknown_server_error",
    ]
