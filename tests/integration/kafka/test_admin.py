"""Topics that an unmodified Kafka client creates, configures and deletes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

import smq
from integration.kafka.clients import bootstrap, producer_of
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap(cluster)})


@pytest.fixture
def name(admin: AdminClient) -> Iterator[str]:
    """Of no resource: Kafka's clients call topics so, and Kubernetes does not."""
    name = f"Order_Events.{uuid.uuid4().hex[:8]}"
    yield name
    for future in admin.delete_topics([name]).values():
        future.exception()


def done(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(HANG_GUARD)


def code(futures: dict[Any, Any]) -> int:
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        done(futures)
    return int(raised.value.args[0].code())


def configs(admin: AdminClient, name: str) -> dict[str, str]:
    found = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))
    return {key: entry.value for key, entry in found.items()}


def change(admin: AdminClient, name: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])]))


def read(cluster: LocalCluster, topic: str, group: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap(cluster), "group.id": group, "auto.offset.reset": "earliest"}
    )
    found: list[bytes] = []

    def poll() -> bool:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            found.append(message.value())
        return len(found) >= count

    try:
        consumer.subscribe([topic])
        eventually(poll, what=f"{count} messages")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def test_a_topic_with_a_name_of_kafka_is_created_used_and_deleted(
    cluster: LocalCluster, client: smq.Client, admin: AdminClient, name: str
) -> None:
    done(admin.create_topics([NewTopic(name, 4, 2, config={"retention.ms": "3600000"})]))
    assert code(admin.create_topics([NewTopic(name, 4, 2)])) == KafkaError.TOPIC_ALREADY_EXISTS
    described = done(admin.describe_topics(confluent_kafka.TopicCollection([name])))
    assert len(described.partitions) == 4 and name in admin.list_topics(timeout=HANG_GUARD).topics

    known = {it.kafka_name: it for it in client.admin().topics()}[name]
    settings = {it.field: it.value for it in client.admin().settings(known.name)}
    assert (settings["retention.age"], settings["retention.unread"]) == ("1h", "Expire")

    producer = producer_of(cluster)
    for number in range(100):
        producer.produce(name, b"%d" % number, partition=number % 4)
    assert producer.flush(HANG_GUARD) == 0
    with client.consumer(known.name, start="earliest") as consumer:
        assert len(next(iter(consumer))) > 0
    assert sorted(map(int, read(cluster, name, f"g-{name}", 100))) == list(range(100))
    offsets = done(admin.list_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions(f"g-{name}")]))
    assert {(it.topic, it.partition): it.offset for it in offsets.topic_partitions} == {
        (name, partition): 25 for partition in range(4)
    }

    done(admin.delete_topics([name]))
    assert code(admin.delete_topics([name])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert known.name not in {it.name for it in client.admin().topics()}


def test_a_topic_of_the_same_name_begins_anew(cluster: LocalCluster, admin: AdminClient, name: str) -> None:
    for round_ in range(2):
        done(admin.create_topics([NewTopic(name, 1, 2)]))
        producer = producer_of(cluster)
        producer.produce(name, b"%d" % round_, partition=0)
        assert producer.flush(HANG_GUARD) == 0
        assert read(cluster, name, f"g{round_}-{name}", 1) == [b"%d" % round_]
        done(admin.delete_topics([name]))


def test_the_configuration_is_that_of_the_topic(
    cluster: LocalCluster, client: smq.Client, admin: AdminClient, name: str
) -> None:
    done(admin.create_topics([NewTopic(name, 4, 2, config={"cleanup.policy": "compact"})]))
    assert (configs(admin, name)["cleanup.policy"], configs(admin, name)["retention.ms"]) == ("compact", "-1")
    change(admin, name, "cleanup.policy", "delete")
    change(admin, name, "retention.ms", "60000")
    change(admin, name, "retention.bytes", "1048576")
    eventually(lambda: configs(admin, name)["retention.bytes"] == "1048576", what="the new configuration")
    assert (configs(admin, name)["cleanup.policy"], configs(admin, name)["retention.ms"]) == ("delete", "60000")
    known = {it.kafka_name: it.name for it in client.admin().topics()}[name]
    settings = {it.field: it.value for it in client.admin().settings(known)}
    assert (settings["retention.age"], settings["retention.bytes"]) == ("1m", "4Mi")
    with pytest.raises(confluent_kafka.KafkaException, match="no configuration that topics have here"):
        change(admin, name, "no.such.key", "1")


def test_what_cannot_be_is_refused_with_the_reason(admin: AdminClient, name: str) -> None:
    assert code(admin.create_topics([NewTopic(name, 2000, 2)])) == KafkaError.INVALID_PARTITIONS
    assert code(admin.create_topics([NewTopic(name, 1, 9)])) == KafkaError.INVALID_REPLICATION_FACTOR
    assert code(admin.create_topics([NewTopic("a b", 1, 2)])) == KafkaError.TOPIC_EXCEPTION
    done(admin.create_topics([NewTopic(name, 2, 2)], validate_only=True))
    assert code(admin.delete_topics([name])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    done(admin.create_topics([NewTopic(name, 2, 2)]))
    assert code(admin.create_partitions([NewPartitions(name, 4)])) == KafkaError.INVALID_PARTITIONS
    record = confluent_kafka.TopicPartition(name, 0, 0)
    assert done(admin.delete_records([record])).low_watermark == 0
