"""Unmodified Kafka clients write to topics and read them."""

from __future__ import annotations

import asyncio
from itertools import chain, islice

import aiokafka
import confluent_kafka
import pytest

import smq
from integration.kafka.clients import PARTITIONS, bootstrap, by_key, check_dense, producer_of, read_all, read_by_key
from smq_core.model.kafka_partitioner import kafka_partition_of
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration

KEYS = [b"key-%d" % number for number in range(40)]


@pytest.fixture
def kafka_topic(cluster: LocalCluster, topic: str) -> str:
    cluster.create(topic, partitioner="Kafka", partitions=PARTITIONS, segments={"max": 8}, flush={"interval": "200ms"})
    return topic


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_writes_what_the_library_and_librdkafka_read(
    cluster: LocalCluster, client: smq.Client, kafka_topic: str, compression: str
) -> None:
    producer = producer_of(cluster, **{"compression.type": compression})
    errors: list[confluent_kafka.KafkaError] = []
    sent = [(KEYS[number % len(KEYS)], b"value %d" % number) for number in range(2000)]
    for key, value in sent:
        producer.produce(
            kafka_topic, value, key, headers={"h": b"x"}, on_delivery=lambda error, _: error and errors.append(error)
        )
        producer.poll(0)
    assert producer.flush(HANG_GUARD) == 0 and errors == []

    with client.consumer(kafka_topic, start="earliest") as consumer:
        messages = list(islice(chain.from_iterable(consumer), len(sent)))
    assert by_key((it.key, it.value) for it in messages) == by_key(sent)
    assert {tuple(it.headers) for it in messages} == {(("h", b"x"),)}
    assert all(it.partition == kafka_partition_of(it.key, PARTITIONS) for it in messages)

    found = read_all(cluster, kafka_topic, len(sent))
    check_dense(found)
    assert read_by_key(found) == by_key(sent)


def test_aiokafka_reads_what_the_library_wrote(cluster: LocalCluster, client: smq.Client, kafka_topic: str) -> None:
    with client.producer(kafka_topic) as producer:
        for number in range(500):
            producer.send(b"%d" % number, key=KEYS[number % len(KEYS)])
        producer.flush(HANG_GUARD)

    async def read() -> list[aiokafka.ConsumerRecord]:
        consumer = aiokafka.AIOKafkaConsumer(
            kafka_topic, bootstrap_servers=bootstrap(cluster), group_id=None, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            return [await asyncio.wait_for(consumer.getone(), HANG_GUARD) for _ in range(500)]
        finally:
            await consumer.stop()

    found = asyncio.run(read())
    assert sorted(int(it.value) for it in found) == list(range(500))
    assert all(it.partition == kafka_partition_of(it.key, PARTITIONS) for it in found)


@pytest.mark.parametrize("spec", [{}, {"partitioner": "Kafka", "schema": [{"name": "id", "type": "int64"}]}])
def test_other_topics_refuse_records_and_say_why(cluster: LocalCluster, topic: str, spec: dict[str, object]) -> None:
    cluster.create(topic, partitions=PARTITIONS, segments={"max": 8}, **spec)
    errors: list[confluent_kafka.KafkaError] = []
    producer = producer_of(cluster, **{"enable.idempotence": False})
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(HANG_GUARD) == 0
    assert [it.code() for it in errors] == [confluent_kafka.KafkaError.INVALID_RECORD]


def test_transactions_are_refused_at_once(cluster: LocalCluster, kafka_topic: str) -> None:
    producer = producer_of(cluster, **{"transactional.id": "t"})
    with pytest.raises(confluent_kafka.KafkaException):
        producer.init_transactions(HANG_GUARD)
