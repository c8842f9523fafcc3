"""Requests are split by the brokers that lead, and a broker that does not is forgotten."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from smq_broker.kafka.cluster import KafkaNode
from smq_broker.kafka.protocol.entities import build
from smq_broker.kafka.protocol.fetch_response import FetchedPartition, FetchedTopic
from smq_broker.kafka.proxy.apis.cluster_view import NODE_ID, ClusterView
from smq_broker.kafka.proxy.apis.fetch_api import merged_topics
from smq_broker.kafka.proxy.apis.splitting import Shape, merge, number_of, split, stale_partitions, topic_key
from smq_broker.kafka.proxy.brokers import routes as routing
from smq_broker.kafka.proxy.brokers.routes import Routes

METADATA, LIST_OFFSETS = 3, 2
NODES = [KafkaNode(10, "a", 1), KafkaNode(20, "b", 2)]
ID = UUID(int=5)


def metadata(leaders: dict[int, int], version: int = 12, nodes: list[KafkaNode] = NODES) -> Any:
    """Of a topic with these leaders."""
    partitions = [
        {
            "partition_index": number,
            "leader_id": leader,
            "leader_epoch": 3,
            "error_code": ErrorCode.none if leader >= 0 else ErrorCode.leader_not_available,
            "replica_nodes": (10, 20) if leader >= 0 else (),
            "isr_nodes": (10, 20) if leader >= 0 else (),
            "offline_replicas": (),
        }
        for number, leader in leaders.items()
    ]
    topic = {"error_code": ErrorCode.none, "name": "t", "topic_id": ID, "is_internal": False, "partitions": partitions}
    return build(
        load_response_schema(METADATA, version),
        {
            "throttle_time": i32Timedelta.parse(timedelta()),
            "brokers": [{"node_id": it.id, "host": it.host, "port": it.port, "rack": None} for it in nodes],
            "cluster_id": "c",
            "controller_id": 10,
            "error_code": ErrorCode.none,
            "topics": [topic],
        },
    )


def known(leaders: dict[int, int]) -> Routes:
    routes = Routes()
    routes.learn_metadata(metadata(leaders))
    return routes


def test_a_topic_has_the_same_leaders_by_its_name_and_its_id() -> None:
    routes = known({0: 10, 1: 20, 2: -1})
    for key in ("t", ID):
        assert [routes.leader(key, it) for it in range(4)] == [10, 20, None, None]
    routes.forget_leader(ID, 0, 10)
    assert routes.leader("t", 0) is None and routes.leader("t", 1) == 20


def test_a_late_rejection_does_not_forget_what_was_learned_meanwhile() -> None:
    routes = known({0: 10})
    routes.learn_metadata(metadata({0: 20}))
    routes.forget_leader("t", 0, 10)
    assert routes.leader("t", 0) == 20
    routes.learn_coordinator("g", NODES[1])
    routes.forget_coordinator("g", 10)
    assert routes.coordinator("g") == 20
    routes.forget_coordinator("g", 20)
    assert routes.coordinator("g") is None


def test_a_broker_that_is_gone_leads_nothing() -> None:
    routes = known({0: 10, 1: 20})
    routes.learn_coordinator("g", NODES[0])
    routes.learn_nodes([NODES[1]])
    assert (routes.leader("t", 0), routes.leader("t", 1), routes.coordinator("g")) == (None, 20, None)
    routes.learn_nodes([])
    assert list(routes.nodes) == [20], "a list without brokers says nothing"


def test_routes_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "MAX_GROUPS", 3)
    routes = known({0: 10})
    for number in range(10):
        routes.learn_coordinator(f"g{number}", NODES[0])
    assert [it for it in range(10) if routes.coordinator(f"g{it}") is not None] == [7, 8, 9]


wanted = st.dictionaries(st.sampled_from(["t", "u", "v"]), st.lists(st.integers(0, 6), max_size=6), max_size=3)


def list_offsets(topics: dict[str, list[int]]) -> Any:
    partitions = {
        name: [{"partition_index": it, "timestamp": -1, "current_leader_epoch": -1} for it in own]
        for name, own in topics.items()
    }
    values = [{"name": name, "partitions": own} for name, own in partitions.items()]
    return build(load_request_schema(LIST_OFFSETS, 5), {"replica_id": -1, "isolation_level": 0, "topics": values})


def found_offsets(topics: list[Any], throttle_ms: int = 0) -> Any:
    """The response of a broker to a request for these topics."""
    values = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": it.partition_index, "error_code": ErrorCode.none} for it in topic.partitions
            ],
        }
        for topic in topics
    ]
    throttle = i32Timedelta.parse(timedelta(milliseconds=throttle_ms))
    return build(load_response_schema(LIST_OFFSETS, 5), {"throttle_time": throttle, "topics": values})


def all_of(topics: Any) -> Counter[tuple[Any, int]]:
    return Counter((topic_key(topic), number_of(it)) for topic in topics for it in topic.partitions)


@given(wanted)
def test_each_partition_is_sent_to_its_leader_once_and_answered_once(topics: dict[str, list[int]]) -> None:
    request = list_offsets(topics)
    parts = split(request.topics, lambda _, number: (10, 20, None)[number % 3])
    for node, own in parts.items():
        assert {number_of(it) % 3 for topic in own for it in topic.partitions} <= {{10: 0, 20: 1, None: 2}[node]}
    assert sum((all_of(own) for own in parts.values()), Counter()) == all_of(request.topics)
    assert {it.name for own in parts.values() for it in own} == topics.keys()
    if parts:
        answers = [found_offsets(own, number) for number, own in enumerate(parts.values())]
        merged = merge(answers, Shape())
        assert all_of(merged.topics) == all_of(request.topics)
        assert len(merged.topics) == len(topics)
        assert merged.throttle_time == max(it.throttle_time for it in answers)


def test_partitions_that_a_broker_does_not_lead_are_stale() -> None:
    codes = [ErrorCode.none, ErrorCode.not_leader_or_follower, ErrorCode.offset_out_of_range]
    partitions = [{"partition_index": number, "error_code": code} for number, code in enumerate(codes)]
    values = {"throttle_time": i32Timedelta.parse(timedelta()), "topics": [{"name": "t", "partitions": partitions}]}
    assert stale_partitions(build(load_response_schema(LIST_OFFSETS, 5), values), Shape()) == [("t", 1)]


def fetched(sizes: dict[int, int], name: str = "t") -> FetchedTopic:
    own = [
        FetchedPartition(partition=number, high_watermark=9, records=(b"x" * size,) if size else ())
        for number, size in sizes.items()
    ]
    return FetchedTopic(name, UUID(int=0), own)


def test_records_that_do_not_fit_are_fetched_later_but_for_the_first() -> None:
    merged = merged_topics([fetched({0: 0, 1: 500}), fetched({2: 60, 3: 40}), fetched({0: 1}, "u")], 100)
    assert [it.name for it in merged] == ["t", "u"]
    assert [sum(map(len, it.records)) for topic in merged for it in topic.partitions] == [0, 500, 0, 0, 0]
    assert all(it.high_watermark == 9 for topic in merged for it in topic.partitions)
    merged = merged_topics([fetched({0: 50}), fetched({2: 60, 3: 40})], 100)
    assert [sum(map(len, it.records)) for topic in merged for it in topic.partitions] == [50, 0, 40]


@pytest.mark.parametrize("version", range(14))
def test_clients_see_one_node_that_leads_all_partitions_with_a_leader(version: int) -> None:
    shown = ClusterView(lambda: "proxy.example.com:9092").of_metadata(metadata({0: 10, 1: 20, 2: -1}, version))
    assert [(it.node_id, it.host, it.port) for it in shown.brokers] == [(NODE_ID, "proxy.example.com", 9092)]
    (topic,) = shown.topics
    assert [it.leader_id for it in topic.partitions] == [NODE_ID, NODE_ID, -1]
    assert [(it.replica_nodes, it.isr_nodes) for it in topic.partitions] == [((NODE_ID,),) * 2] * 2 + [((), ())]
    assert getattr(shown, "controller_id", NODE_ID) == NODE_ID
