"""A proxy over brokers that answer what a test says: where requests go, their order, and what if brokers are away."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta
from prometheus_client import CollectorRegistry

from smq_broker.kafka.cluster import KafkaNode
from smq_broker.kafka.protocol.messages import FETCH, PRODUCE
from smq_broker.kafka.proxy.apis.cluster_view import NODE_ID
from smq_broker.kafka.proxy.brokers import client_upstreams
from smq_broker.kafka.proxy.service import KafkaProxyService, api_table
from smq_core.model.addresses import join_address
from smq_storage.object_store.store import open_store
from support.in_memory.kafka_apis import apis_of_one_topic
from support.in_memory.kafka_proxy import (
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    HEARTBEAT,
    LIST_GROUPS,
    METADATA,
    TOPIC,
    Cluster,
    start_proxy,
)
from support.kafka_socket import KafkaSocket, request_frame
from support.waiting import HANG_GUARD, eventually

A, B = 10, 20
LONG = i32Timedelta.parse(timedelta(seconds=10 * HANG_GUARD))
SHORT = i32Timedelta.parse(timedelta(milliseconds=1))
BROKER = 4


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Partitions 0 and 2 are led by A, 1 and 3 by B."""
    made = Cluster({0: A, 1: B, 2: A, 3: B}, {"of-a": A, "of-b": B})
    made.start([A, B])
    yield made
    made.stop()


@pytest.fixture
def collectors() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def proxy(cluster: Cluster, collectors: CollectorRegistry) -> Iterator[KafkaProxyService]:
    made = start_proxy(cluster.nodes(), collectors)
    yield made
    made.stop()


@pytest.fixture
def client(proxy: KafkaProxyService) -> Iterator[KafkaSocket]:
    with KafkaSocket(proxy.address) as made:
        yield made


def produce_frame(number: int, partitions: list[int], *, acks: int = -1, timeout: float = 1.0) -> bytes:
    data = [{"index": it, "records": b"%d" % number} for it in partitions]
    values = {
        "transactional_id": None,
        "acks": acks,
        "timeout": i32Timedelta.parse(timedelta(seconds=timeout)),
        "topic_data": [{"name": TOPIC, "partition_data": data}],
    }
    return request_frame(PRODUCE, 9, number, values)


def produce(client: KafkaSocket, number: int, partitions: list[int], **more: Any) -> None:
    client.socket.sendall(produce_frame(number, partitions, **more))


def produced(client: KafkaSocket) -> tuple[int, dict[int, ErrorCode]]:
    number, body = client.receive(PRODUCE, 9)
    (topic,) = body.responses
    return number, {it.index: it.error_code for it in topic.partition_responses}


def fetch(client: KafkaSocket, number: int, partitions: list[int], *, wait: Any = LONG, **more: Any) -> None:
    wanted = [
        {"partition": it, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
        | {"last_fetched_epoch": -1, "log_start_offset": -1}
        for it in partitions
    ]
    values = {"replica_id": -1, "max_wait": wait, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
    values |= {"session_id": 0, "session_epoch": 0, "forgotten_topics_data": (), "rack_id": ""} | more
    client.send(FETCH, 12, number, topics=[{"topic": TOPIC, "partitions": wanted}], **values)


def fetched(client: KafkaSocket) -> dict[int, Any]:
    _, body = client.receive(FETCH, 12)
    assert (body.error_code, body.session_id) == (ErrorCode.none, 0)
    return {it.partition_index: it for topic in body.responses for it in topic.partitions}


def heartbeat(client: KafkaSocket, group: str) -> ErrorCode:
    client.send(HEARTBEAT, 3, 1, group_id=group, generation_id=1, member_id="m", group_instance_id=None)
    return client.receive(HEARTBEAT, 3)[1].error_code  # type: ignore[no-any-return]


# ---- where requests go


def test_each_broker_gets_the_partitions_that_it_leads_and_the_client_one_response(
    client: KafkaSocket, cluster: Cluster
) -> None:
    produce(client, 1, [0, 1, 2, 3])
    assert produced(client) == (1, dict.fromkeys(range(4), ErrorCode.none))
    assert cluster.brokers[A].produced == [(0, b"1"), (2, b"1")]
    assert cluster.brokers[B].produced == [(1, b"1"), (3, b"1")]


def test_what_a_client_sends_without_waiting_arrives_in_its_order(client: KafkaSocket, cluster: Cluster) -> None:
    for number in range(1, 41):
        produce(client, number, [number % 4, (number + 1) % 4])
    assert [produced(client)[0] for _ in range(40)] == list(range(1, 41))
    for broker in cluster.brokers.values():
        arrived = [int(records) for _, records in broker.produced]
        assert arrived == sorted(arrived) and len(arrived) == 40


def test_a_request_that_has_to_look_for_a_leader_is_not_overtaken(client: KafkaSocket, cluster: Cluster) -> None:
    produce(client, 1, [0])
    produced(client)
    cluster.leaders[4] = B
    client.socket.sendall(produce_frame(2, [4, 0]) + produce_frame(3, [0]))
    assert [produced(client)[0] for _ in range(2)] == [2, 3]
    assert cluster.brokers[A].produced == [(0, b"1"), (0, b"2"), (0, b"3")]


def test_a_request_without_an_ack_gets_no_response(client: KafkaSocket, cluster: Cluster) -> None:
    produce(client, 1, [0, 1], acks=0)
    produce(client, 2, [0, 1])
    assert produced(client) == (2, {0: ErrorCode.none, 1: ErrorCode.none})
    assert [it.produced for it in cluster.brokers.values()] == [[(0, b"1"), (0, b"2")], [(1, b"1"), (1, b"2")]]


def test_a_partition_that_moves_has_an_error_once(client: KafkaSocket, cluster: Cluster) -> None:
    produce(client, 1, [0])
    produced(client)
    cluster.leaders[0] = B
    produce(client, 2, [0, 1])
    assert produced(client) == (2, {0: ErrorCode.not_leader_or_follower, 1: ErrorCode.none})
    produce(client, 3, [0])
    assert produced(client) == (3, {0: ErrorCode.none})
    assert cluster.brokers[B].produced[-1] == (0, b"3")


def test_the_coordinator_of_a_group_gets_what_is_about_it(client: KafkaSocket, cluster: Cluster) -> None:
    assert heartbeat(client, "of-a") is heartbeat(client, "of-b") is ErrorCode.none
    assert [it.seen.count(HEARTBEAT) for it in cluster.brokers.values()] == [1, 1]
    cluster.coordinators["of-a"] = B
    assert heartbeat(client, "of-a") is ErrorCode.not_coordinator
    assert heartbeat(client, "of-a") is ErrorCode.none


@pytest.mark.parametrize("version", [0, 3, 6])
def test_clients_find_the_proxy_as_coordinator(client: KafkaSocket, proxy: KafkaProxyService, version: int) -> None:
    client.send(FIND_COORDINATOR, version, 1, key="of-b", key_type=0, coordinator_keys=["of-b", "unknown"])
    _, body = client.receive(FIND_COORDINATOR, version)
    found, *others = getattr(body, "coordinators", [body])
    assert (found.node_id, join_address(found.host, found.port)) == (NODE_ID, proxy.address)
    assert [it.error_code for it in others] == [ErrorCode.coordinator_not_available][: len(others)]


def test_groups_of_all_brokers_are_listed(client: KafkaSocket) -> None:
    client.send(LIST_GROUPS, 4, 1, states_filter=())
    _, body = client.receive(LIST_GROUPS, 4)
    assert sorted(it.group_id for it in body.groups) == ["of-a", "of-b"]


def test_the_proxy_has_the_configuration_of_a_broker(client: KafkaSocket) -> None:
    resource = {"resource_type": BROKER, "resource_name": str(NODE_ID), "configuration_keys": None}
    client.send(DESCRIBE_CONFIGS, 4, 1, resources=[resource], include_synonyms=False, include_documentation=False)
    _, body = client.receive(DESCRIBE_CONFIGS, 4)
    assert [it.resource_name for it in body.results] == [str(NODE_ID)]


def test_a_client_that_leaves_takes_its_connections_to_brokers_with_it(
    proxy: KafkaProxyService, collectors: CollectorRegistry
) -> None:
    def open_now() -> float | None:
        return collectors.get_sample_value("smq_kafka_proxy_connections")

    with KafkaSocket(proxy.address) as client:
        produce(client, 1, [0, 1])
        produced(client)
        assert open_now() == 2
    eventually(lambda: open_now() == 0, what="no connection to a broker")


# ---- fetch


def test_a_fetch_waits_at_all_brokers_at_once_and_ends_with_the_first_messages(
    client: KafkaSocket, cluster: Cluster
) -> None:
    fetch(client, 0, [0, 1], wait=SHORT)
    fetched(client)  # there are connections to both brokers now
    cluster.brokers[A].records[2] = b"records"
    fetch(client, 1, [0, 1, 2, 3])
    found = fetched(client)
    assert bytes(found[2].records) == b"records" and not any(found[it].records for it in (0, 1, 3))
    assert {it: found[it].high_watermark for it in found} == {it: 100 + it for it in range(4)}
    fetch(client, 2, [1], wait=SHORT)
    assert fetched(client)[1].high_watermark == 101, "the connection to the broker that waited goes on"


def test_a_fetch_ends_after_its_wait(client: KafkaSocket) -> None:
    began = time.monotonic()
    fetch(client, 1, [0, 1], wait=i32Timedelta.parse(timedelta(milliseconds=300)))
    assert set(fetched(client)) == {0, 1}
    assert 0.3 <= time.monotonic() - began < HANG_GUARD


def test_an_error_of_one_broker_ends_the_wait_of_the_others(client: KafkaSocket, cluster: Cluster) -> None:
    fetch(client, 1, [0, 9])
    found = fetched(client)
    assert found[9].error_code is ErrorCode.not_leader_or_follower and found[0].error_code is ErrorCode.none


def test_a_client_with_a_fetch_session_of_another_listener_begins_anew(client: KafkaSocket) -> None:
    fetch(client, 1, [0], session_id=7, session_epoch=3)
    _, body = client.receive(FETCH, 12)
    assert body.error_code is ErrorCode.fetch_session_id_not_found


# ---- brokers that are away


def test_a_broker_that_is_away_costs_its_own_partitions_a_repetition(client: KafkaSocket, cluster: Cluster) -> None:
    cluster.brokers[B].stop()
    produce(client, 1, [0, 1])
    assert produced(client) == (1, {0: ErrorCode.none, 1: ErrorCode.not_leader_or_follower})
    fetch(client, 2, [0, 1])
    found = fetched(client)
    assert found[1].error_code is ErrorCode.not_leader_or_follower and found[0].error_code is ErrorCode.none
    assert heartbeat(client, "of-b") is ErrorCode.coordinator_not_available
    assert heartbeat(client, "of-a") is ErrorCode.none
    cluster.leaders |= {1: A, 3: A}
    produce(client, 3, [0, 1])
    assert produced(client) == (3, {0: ErrorCode.none, 1: ErrorCode.none})


def test_a_broker_that_hangs_may_have_written_what_it_got(
    client: KafkaSocket, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(client, 1, [0, 1])
    produced(client)
    monkeypatch.setattr(client_upstreams, "ANSWER_SECONDS", 0.2)
    cluster.brokers[B].hangs = True
    produce(client, 2, [0, 1], timeout=0.0)
    assert produced(client) == (2, {0: ErrorCode.none, 1: ErrorCode.request_timed_out})


def test_without_any_broker_the_connection_ends_and_groups_get_an_error_to_repeat(cluster: Cluster) -> None:
    nobody = start_proxy([])
    try:
        with KafkaSocket(nobody.address) as client:
            assert heartbeat(client, "of-a") is ErrorCode.coordinator_not_available
            produce(client, 1, [0])
            assert produced(client) == (1, {0: ErrorCode.not_leader_or_follower})
            client.send(METADATA, 1, 2, topics=None)
            assert client.has_ended()
    finally:
        nobody.stop()


def test_what_changes_something_is_sent_once(
    client: KafkaSocket, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_upstreams, "ANSWER_SECONDS", 0.2)
    for broker in cluster.brokers.values():
        broker.hangs = True
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    client.send(CREATE_TOPICS, 2, 1, topics=[topic], timeout=i32Timedelta.parse(timedelta()), validate_only=False)
    assert client.has_ended()
    assert sum(it.seen.count(CREATE_TOPICS) for it in cluster.brokers.values()) == 1


def test_a_look_up_finds_another_broker(client: KafkaSocket, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    client.send(METADATA, 1, 1, topics=None)
    client.receive(METADATA, 1)
    monkeypatch.setattr(client_upstreams, "ANSWER_SECONDS", 0.2)
    (home,) = (it for it in cluster.brokers.values() if METADATA in it.seen)
    home.hangs = True
    client.send(METADATA, 1, 2, topics=None)
    assert client.receive(METADATA, 1)[0] == 2


def test_a_broker_that_answers_with_anything_else_is_left(
    proxy: KafkaProxyService, client: KafkaSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_upstreams, "ANSWER_SECONDS", 10 * HANG_GUARD)
    liar = socket.create_server(("127.0.0.1", 0))

    def lie() -> None:
        while True:
            try:
                connection, _ = liar.accept()
            except OSError:
                return
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    threading.Thread(target=lie, daemon=True).start()
    proxy.show_brokers([KafkaNode(A, "127.0.0.1", liar.getsockname()[1])])
    try:
        client.send(METADATA, 1, 1, topics=None)
        assert client.has_ended()
    finally:
        liar.close()


# ---- versions


def test_the_proxy_has_the_apis_of_a_broker_in_the_same_versions() -> None:
    broker = {key: it[:2] for key, it in apis_of_one_topic(open_store("memory://")).items()}
    proxy = {key: it[:2] for key, it in api_table(None, None).items()}  # type: ignore[arg-type]
    assert proxy == broker
