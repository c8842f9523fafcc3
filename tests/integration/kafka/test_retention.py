"""Retention waits for groups of Kafka clients, with real processes."""

from __future__ import annotations

import json

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import smq
from integration.kafka.clients import PARTITIONS, bootstrap
from integration.kafka.test_groups import produce
from support.processes.cli import smq as run_smq
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = pytest.mark.integration


def commit(cluster: LocalCluster, topic: str, group: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap(cluster), "group.id": group})
    try:
        offsets = [confluent_kafka.TopicPartition(topic, number, offset) for number in range(PARTITIONS)]
        consumer.commit(offsets=offsets, asynchronous=False)
    finally:
        consumer.close()


def held_for(client: smq.Client, topic: str) -> str:
    found = [it.message for it in client.admin().topic(topic).conditions if it.type == "RetentionBlocked"]
    return found[0] if found else ""


def test_a_segment_stays_until_kafka_groups_have_read_it_or_are_deleted(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    spec = {"partitioner": "Kafka", "partitions": PARTITIONS, "segments": {"max": 8}, "flush": {"interval": "200ms"}}
    cluster.create(topic, **spec, retention={"age": "1s"})
    late, deleted = f"late-{topic}", f"deleted-{topic}"
    (first,) = client.admin().segments(topic)
    produce(cluster, topic, 2 * PARTITIONS)
    commit(cluster, topic, late, 1)
    commit(cluster, topic, deleted, 0)
    client.admin().roll(topic, first.name)

    def removed() -> bool:
        return first.name not in {it.name for it in client.admin().segments(topic, all=True)}

    eventually(lambda: all(f"{it} (Kafka)" in held_for(client, topic) for it in (late, deleted)), what="both hold it")
    commit(cluster, topic, late, 2)
    eventually(lambda: late not in held_for(client, topic), what="one group has read it")
    assert deleted in held_for(client, topic) and not removed()
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster)})
    admin.delete_consumer_groups([deleted])[deleted].result(30)
    eventually(removed, what="the other one is deleted, so the segment goes")


def test_smq_group_shows_kafka_groups_beside_others_and_leaves_changes_to_their_coordinator(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    spec = {"partitioner": "Kafka", "partitions": PARTITIONS, "segments": {"max": 8}, "flush": {"interval": "200ms"}}
    cluster.create(topic, **spec)
    produce(cluster, topic, 3 * PARTITIONS)
    both, leader = f"both-{topic}", cluster.address
    commit(cluster, topic, both, 1)
    commit(cluster, topic, "kafka", 3)
    with client.consumer(topic, group=both, start="earliest") as reader:
        eventually(lambda: reader.assignment)

    def lags() -> dict[str, int | None]:
        return {it.name: it.lag for it in client.admin().kafka_groups(topic)}

    eventually(lambda: lags() == {both: 2 * PARTITIONS, "kafka": 0}, what="all messages are in files")
    listed = run_smq("group", "list", topic, leader=leader)
    assert list(zip(listed.column("GROUP"), listed.column("KIND"), strict=True)) == [
        (both, "smq"),
        (both, "Kafka"),
        ("kafka", "Kafka"),
    ]
    shown = run_smq("group", "describe", topic, both, "-o", "json", leader=leader)
    found = json.loads(shown.out)
    assert found["group"]["positions"] == {} and found["kafka_group"]["partitions"][0] == {
        "partition": 0,
        "committed": 1,
        "end": 3,
    }
    assert ["0", "3", "3", "0"] in [
        line.split() for line in run_smq("group", "describe", topic, "kafka", leader=leader).lines
    ]
    for command in (("reset", topic, "kafka", "--to-earliest"), ("delete", topic, "kafka", "--yes")):
        refused = run_smq("group", *command, leader=leader)
        assert refused.code == 1 and "kafka-consumer-groups.sh" in refused.err
    assert lags()["kafka"] == 0
