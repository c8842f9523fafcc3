"""What no client sends, and what hardly any does: Kafka's code for it, nothing changed, few lines in the log."""

from __future__ import annotations

import json
import struct
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from integration.kafka.clients import PARTITIONS
from smq_broker.kafka.protocol.messages import API_VERSIONS, FETCH, PRODUCE
from support.fuzzing.kafka_batches import signed
from support.kafka_socket import KafkaSocket, request_frame
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 2, 3, 8, 9, 10
JOIN_GROUP, HEARTBEAT, SYNC_GROUP, CREATE_TOPICS = 11, 12, 14, 19
NOW_MS = 1_700_000_000_000
NO_TIME = timedelta()


@pytest.fixture
def kafka_topic(cluster: LocalCluster, topic: str) -> str:
    cluster.create(topic, partitioner="Kafka", partitions=PARTITIONS, segments={"max": 8}, flush={"interval": "200ms"})
    return topic


def addresses(cluster: LocalCluster) -> dict[str, str]:
    return {name: found for name in cluster.pids() if (found := cluster.kafka_address(name)) is not None}


@pytest.fixture
def client(cluster: LocalCluster, kafka_topic: str) -> Iterator[KafkaSocket]:
    """Connected to the broker that leads the topic's partitions."""
    nodes = {}
    for address in addresses(cluster).values():
        with KafkaSocket(address) as socket:
            own = call(socket, METADATA, 5, topics=[{"name": kafka_topic}], allow_auto_topic_creation=False)
            nodes = {it.node_id: f"{it.host}:{it.port}" for it in own.brokers}
            (found,) = own.topics
    with KafkaSocket(nodes[found.partitions[0].leader_id]) as socket:
        yield socket


def call(socket: KafkaSocket, api_key: int, version: int, /, **values: Any) -> Any:
    socket.send(api_key, version, 1, **values)
    return socket.receive(api_key, version)[1]


def batch(count: int = 1, *, timestamp: int = NOW_MS) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number in range(count):
        builder.append(number, timestamp, b"k", b"v", [])
    return builder.build()


def changed(at: int, value: bytes) -> bytes:
    made = batch()
    made[at : at + len(value)] = value
    return bytes(signed(made))


def produced(socket: KafkaSocket, topic: str, records: bytes, partition: int = 0) -> str:
    """The name of the error."""
    data = [{"index": partition, "records": records}]
    topics = [{"name": topic, "partition_data": data}]
    answer = call(socket, PRODUCE, 7, acks=-1, timeout=timedelta(seconds=10), topic_data=topics)
    return str(answer.responses[0].partition_responses[0].error_code.name)


def test_batches_that_disagree_with_themselves_are_refused_as_by_kafka(client: KafkaSocket, kafka_topic: str) -> None:
    wrong_crc = batch()
    wrong_crc[-1] ^= 1
    refused = {
        "wrong CRC": (bytes(wrong_crc), "corrupt_message"),
        "magic 0": (changed(16, b"\0"), "invalid_record"),
        "magic 1": (changed(16, b"\1"), "invalid_record"),
        "number of records": (changed(57, b"\0\0\0\7"), "invalid_record"),
        "last offset": (changed(23, b"\0\0\0\7"), "invalid_record"),
        "length of the record": (changed(61, b"\x7e"), "invalid_record"),
        "control batch": (changed(21, b"\0\x20"), "invalid_record"),
        "transactional batch": (changed(21, b"\0\x10"), "transactional_id_authorization_failed"),
        "compression": (changed(21, b"\0\7"), "unsupported_compression_type"),
        "timestamp": (bytes(batch(timestamp=1 << 61)), "invalid_timestamp"),
        "two batches": (bytes(batch() + batch()), "invalid_record"),
        "a cut batch": (bytes(batch()[:-3]), "corrupt_message"),
        "nothing": (b"", "invalid_record"),
    }
    found = {name: produced(client, kafka_topic, records) for name, (records, _) in refused.items()}
    assert found == {name: code for name, (_, code) in refused.items()}
    assert [produced(client, kafka_topic, bytes(batch()), at) for at in (-1, PARTITIONS, 1 << 30)] == [
        "unknown_topic_or_partition"
    ] * 3
    partitions = [{"partition_index": 0, "timestamp": -1}]
    answer = call(client, LIST_OFFSETS, 1, replica_id=-1, topics=[{"name": kafka_topic, "partitions": partitions}])
    assert answer.topics[0].partitions[0].offset == 0
    assert produced(client, kafka_topic, bytes(batch(3))) == "none"


def test_offsets_out_of_range_are_refused_on_both_sides(client: KafkaSocket, kafka_topic: str) -> None:
    assert produced(client, kafka_topic, bytes(batch(3))) == "none"

    def fetched(offset: int) -> str:
        partitions = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
        answer = call(
            client,
            FETCH,
            4,
            replica_id=-1,
            max_wait=NO_TIME,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            topics=[{"topic": kafka_topic, "partitions": partitions}],
        )
        return str(answer.responses[0].partitions[0].error_code.name)

    found = {it: fetched(it) for it in (-(1 << 63), -1, 0, 3, 4, (1 << 63) - 1)}
    assert [it for it, code in found.items() if code == "none"] == [0, 3]
    assert set(found.values()) == {"none", "offset_out_of_range"}


def test_names_have_249_characters_at_most(client: KafkaSocket) -> None:
    longest, longer = "Long." + "x" * 244, "Long." + "x" * 245

    def created(name: str) -> str:
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 2, "assignments": (), "configs": ()}]
        answer = call(client, CREATE_TOPICS, 3, topics=topics, timeout=timedelta(seconds=30), validate_only=False)
        return str(answer.topics[0].error_code.name)

    assert [created(it) for it in (longest, longer, "", "a/b", "..")] == ["none", *["invalid_topic_exception"] * 4]
    wanted = [{"name": it} for it in (longest, longer, "ü", "absent")]
    answer = call(client, METADATA, 5, topics=wanted, allow_auto_topic_creation=False)
    assert {it.name: it.error_code.name for it in answer.topics} == {
        longest: "none",
        longer: "invalid_topic_exception",
        "ü": "invalid_topic_exception",
        "absent": "unknown_topic_or_partition",
    }


def test_ten_thousand_topics_in_one_metadata_request(
    cluster: LocalCluster, client: KafkaSocket, kafka_topic: str
) -> None:
    """Others are served meanwhile."""
    names = [f"absent-{number}" for number in range(9_999)]
    began = time.monotonic()
    wanted = [{"name": it} for it in (*names, kafka_topic)]
    client.send(METADATA, 5, 1, topics=wanted, allow_auto_topic_creation=False)
    host, port = client.socket.getpeername()
    with KafkaSocket(f"{host}:{port}") as other:
        assert produced(other, kafka_topic, bytes(batch())) == "none"
    answer = client.receive(METADATA, 5)[1]
    print(f"10,000 topics in {time.monotonic() - began:.2f} s")
    assert Counter(it.error_code.name for it in answer.topics) == {"unknown_topic_or_partition": 9_999, "none": 1}


def coordinator(client: KafkaSocket, group: str) -> str:
    def found() -> str | None:
        answer = call(client, FIND_COORDINATOR, 1, key=group, key_type=0)
        return f"{answer.host}:{answer.port}" if answer.error_code.name == "none" else None

    return str(eventually(found, what="the coordinator"))


def test_commits_for_partitions_that_do_not_exist_are_refused(client: KafkaSocket, kafka_topic: str) -> None:
    group = f"g-{kafka_topic}"
    topics = {
        kafka_topic: (0, -1, PARTITIONS, 1 << 30),
        "absent": (0,),
    }
    commits = [
        {
            "name": name,
            "partitions": [
                {"partition_index": at, "committed_offset": 5, "committed_metadata": "", "committed_leader_epoch": -1}
                for at in partitions
            ],
        }
        for name, partitions in topics.items()
    ]
    with KafkaSocket(coordinator(client, group)) as socket:
        values = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": commits}
        answer = call(socket, OFFSET_COMMIT, 6, **values)
        codes = [it.error_code.name for topic in answer.topics for it in topic.partitions]
        assert codes == ["none", *["unknown_topic_or_partition"] * 4]
        wanted = [{"name": name, "partition_indexes": partitions} for name, partitions in topics.items()]
        stored = call(socket, OFFSET_FETCH, 5, group_id=group, topics=wanted)
    assert [it.committed_offset for topic in stored.topics for it in topic.partitions] == [5, -1, -1, -1, -1]


def test_frames_that_are_no_requests_end_their_connection_with_one_line_of_each_kind(
    cluster: LocalCluster, client: KafkaSocket
) -> None:
    name, address = next(iter(addresses(cluster).items()))
    valid = request_frame(API_VERSIONS, 0, 1, {})
    kinds = {
        "a negative length": struct.pack(">i", -1),
        "a huge length": struct.pack(">i", (1 << 31) - 1),
        "an unknown API": valid[:4] + struct.pack(">h", 999) + valid[6:],
        "an unknown version": request_frame(METADATA, 1, 1, {"topics": None}).replace(b"\0\3\0\1", b"\0\3\0\x7f", 1),
        "a cut body": struct.pack(">i", 20) + request_frame(METADATA, 1, 1, {"topics": [{"name": "abc"}]})[4:24],
        "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    }
    for sent in kinds.values():
        for _ in range(50):
            with KafkaSocket(address) as socket:
                socket.socket.sendall(sent)
                assert socket.has_ended()
    log = (cluster.folder / "logs" / f"{name}.log").read_text()
    closed = [json.loads(line) for line in log.splitlines() if "kafka.connection_closed" in line]
    found = Counter(it["reason"] for it in closed)
    assert set(found) >= {"frame_size", "unknown_api", "unsupported_version", "malformed"}
    assert "failed_request" not in found and max(found.values()) <= 3, found
    with KafkaSocket(address) as socket:
        socket.send(API_VERSIONS, 0, 1)
        assert socket.receive(API_VERSIONS, 0)[1].api_keys


def test_a_group_has_a_thousand_members(client: KafkaSocket, kafka_topic: str) -> None:
    """With static members, of which each connection has sixteen. Nobody else joins it."""
    group, members, each = f"large-{kafka_topic}", 1000, 16
    subscription = struct.pack(f">hih{len(kafka_topic)}si", 1, 1, len(kafka_topic), kafka_topic.encode(), -1)
    address = coordinator(client, group)
    sockets = [KafkaSocket(address) for _ in range(-(-members // each))]

    def join(number: int) -> dict[str, Any]:
        return {
            "group_id": group,
            "session_timeout": timedelta(minutes=1),
            "rebalance_timeout": timedelta(minutes=1),
            "member_id": "",
            "group_instance_id": f"i{number}",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription}],
        }

    began = time.monotonic()
    for number in range(members):
        sockets[number // each].send(JOIN_GROUP, 5, number, **join(number))
    answers = [sockets[number // each].receive(JOIN_GROUP, 5) for number in range(members)]
    assert {it.error_code.name for _, it in answers} == {"none"}
    generations = {it.generation_id for _, it in answers}
    print(f"joined in {time.monotonic() - began:.2f} s, generations {generations}")
    (leader,) = (it for _, it in answers if it.members)
    assert len(leader.members) == members
    began = time.monotonic()
    by_id = {it.member_id: number for number, it in answers}
    order = sorted(by_id.items(), key=lambda it: it[0] == leader.member_id)
    for id_, number in order:
        assigned = [{"member_id": it, "assignment": b"a" * 20} for it in by_id] if id_ == leader.member_id else []
        values = {"group_id": group, "generation_id": leader.generation_id, "member_id": id_}
        sockets[number // each].send(
            SYNC_GROUP, 3, number, group_instance_id=f"i{number}", assignments=assigned, **values
        )
    synced = [sockets[number // each].receive(SYNC_GROUP, 3)[1] for _, number in order]
    assert {(it.error_code.name, it.assignment) for it in synced} == {("none", b"a" * 20)}
    print(f"synced in {time.monotonic() - began:.2f} s")
    began = time.monotonic()
    for id_, number in order:
        values = {"group_id": group, "generation_id": leader.generation_id, "member_id": id_}
        sockets[number // each].send(HEARTBEAT, 3, number, group_instance_id=f"i{number}", **values)
    beats = [sockets[number // each].receive(HEARTBEAT, 3)[1].error_code.name for _, number in order]
    seconds = time.monotonic() - began
    print(f"{members} heartbeats in {seconds:.2f} s")
    assert set(beats) == {"none"}
    sockets[0].send(JOIN_GROUP, 5, 1, **join(members))
    assert sockets[0].receive(JOIN_GROUP, 5)[1].error_code.name == "group_max_size_reached"
    for it in sockets:
        it.socket.close()
