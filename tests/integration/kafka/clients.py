"""Kafka's clients as the tests use them: librdkafka, without groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import confluent_kafka

from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

PARTITIONS = 8

Found = dict[int, list[confluent_kafka.Message]]


def bootstrap(cluster: LocalCluster) -> str:
    """The addresses of the brokers that run."""
    return ",".join(filter(None, (cluster.kafka_address(name) for name in cluster.pids())))


def producer_of(cluster: LocalCluster, **settings: object) -> confluent_kafka.Producer:
    """An idempotent one that hashes keys as Java does."""
    defaults = {"bootstrap.servers": bootstrap(cluster), "enable.idempotence": True, "partitioner": "murmur2_random"}
    return confluent_kafka.Producer(defaults | settings)


def read_all(cluster: LocalCluster, topic: str, count: int) -> Found:
    """At least ``count`` messages from the earliest on, by partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap(cluster), "group.id": "unused"})
    found: Found = defaultdict(list)
    try:
        begin = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, number, begin) for number in range(PARTITIONS)])

        def read() -> bool:
            for message in consumer.consume(1000, timeout=0.5):
                assert message.error() is None, message.error()
                found[message.partition()].append(message)
            return sum(map(len, found.values())) >= count

        eventually(read, what=f"{count} messages")
    finally:
        consumer.close()
    return found


def check_dense(found: Found) -> None:
    """Every partition has the offsets 0, 1, 2, …"""
    for messages in found.values():
        assert [it.offset() for it in messages] == list(range(len(messages)))


def by_key(rows: Iterable[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, list[bytes | None]]:
    """The values of each key, in their order."""
    found = defaultdict(list)
    for key, value in rows:
        found[key].append(value)
    return dict(found)


def read_by_key(found: Found) -> dict[bytes | None, list[bytes | None]]:
    return by_key((it.key(), it.value()) for own in found.values() for it in own)
