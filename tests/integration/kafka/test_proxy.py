"""Unmodified Kafka clients that reach nothing but the proxy: they write, read in groups, seek and administer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import aiokafka
import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kio.static.primitive import i32Timedelta

import smq
from integration.kafka.clients import PARTITIONS, bootstrap, by_key, check_dense, producer_of, read_all, read_by_key
from integration.kafka.group_members import GroupLog, Member
from integration.kafka.test_elastic_topics import SteadyProducer, changes_of
from smq_broker.kafka.protocol.messages import PRODUCE
from smq_core.model.addresses import split_address
from support.kafka_socket import KafkaSocket
from support.processes.kafka_proxy import kafka_proxy, ports_in_use
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

KEYS = [b"key-%d" % number for number in range(40)]


@pytest.fixture(scope="module")
def proxy(cluster: LocalCluster) -> Iterator[str]:
    with kafka_proxy(cluster.folder, cluster.address) as address:
        yield address


@pytest.fixture
def split_topic(cluster: LocalCluster, client: smq.Client, topic: str) -> str:
    """Its partitions are led by several brokers."""
    cluster.create(
        topic, partitioner="Kafka", partitions=PARTITIONS, segments={"min": 4, "max": 8}, flush={"interval": "200ms"}
    )
    eventually(lambda: all(it.phase == "open" for it in client.admin().segments(topic)), what="open segments")
    assert len({it.brokers[0] for it in client.admin().segments(topic)}) > 1
    return topic


def check_only_proxy(cluster: LocalCluster, proxy: str) -> None:
    """Clients of this process have connections to the proxy, and none to a broker's listener."""
    brokers = {split_address(it)[1] for it in bootstrap(cluster).split(",")}
    assert split_address(proxy)[1] in ports_in_use()
    assert not brokers & ports_in_use()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_writes_and_a_group_reads(
    cluster: LocalCluster, proxy: str, split_topic: str, protocol: str
) -> None:
    producer = producer_of(cluster, **{"bootstrap.servers": proxy})
    errors: list[confluent_kafka.KafkaError] = []
    sent = [(KEYS[number % len(KEYS)], b"value %d" % number) for number in range(2000)]
    for key, value in sent:
        producer.produce(split_topic, value, key, on_delivery=lambda error, _: error and errors.append(error))
        producer.poll(0)
    assert producer.flush(HANG_GUARD) == 0 and errors == []
    brokers = producer.list_topics(timeout=HANG_GUARD).brokers.values()
    assert [f"{it.host}:{it.port}" for it in brokers] == [proxy]

    log = GroupLog()
    own = {"group.protocol": protocol}
    members = [Member(proxy, topic=split_topic, group=f"g-{split_topic}", log=log, **own) for _ in range(2)]
    try:
        eventually(lambda: log.count() == len(sent), what="all messages")
        eventually(lambda: all(it.assigned for it in members), what="both members have partitions")
        check_only_proxy(cluster, proxy)
    finally:
        for it in members:
            it.leave()
    assert log.problems == []
    found = read_all(cluster, split_topic, len(sent))
    check_dense(found)
    assert read_by_key(found) == by_key(sent)


def test_librdkafka_seeks_and_looks_for_offsets(cluster: LocalCluster, proxy: str, split_topic: str) -> None:
    producer = producer_of(cluster, **{"bootstrap.servers": proxy})
    for number in range(80):
        producer.produce(split_topic, b"%d" % number, partition=number % PARTITIONS, timestamp=1_000 + number)
    assert producer.flush(HANG_GUARD) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": proxy, "group.id": "unused"})
    try:
        at = confluent_kafka.TopicPartition
        assert consumer.get_watermark_offsets(at(split_topic, 3), timeout=HANG_GUARD) == (0, 10)
        wanted = [at(split_topic, number, 1_000 + 40 + number) for number in range(PARTITIONS)]
        found = consumer.offsets_for_times(wanted, timeout=HANG_GUARD)
        assert [it.offset for it in found] == [5] * PARTITIONS
        consumer.assign([at(split_topic, number, 9) for number in range(PARTITIONS)])
        eventually(lambda: consumer.poll(0.2), what="a message")
        consumer.seek(at(split_topic, 2, 4))
        messages = iter(lambda: consumer.poll(HANG_GUARD), None)
        assert next(it.value() for it in messages if it.partition() == 2 and it.offset() < 9) == b"34"
    finally:
        consumer.close()


def test_a_reader_that_waits_gets_a_message_of_any_broker_at_once(
    cluster: LocalCluster, proxy: str, split_topic: str
) -> None:
    """The brokers that have nothing wait for a minute otherwise."""
    wait = {"fetch.wait.max.ms": 60_000, "socket.timeout.ms": 90_000}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": proxy, "group.id": "unused"} | wait)
    producer = producer_of(cluster, **{"bootstrap.servers": proxy})
    try:
        consumer.assign([confluent_kafka.TopicPartition(split_topic, number, 0) for number in range(PARTITIONS)])
        for number in range(PARTITIONS):
            producer.produce(split_topic, b"%d" % number, partition=number)
            assert producer.flush(HANG_GUARD) == 0
            message = consumer.poll(HANG_GUARD)
            assert message is not None and message.error() is None and message.partition() == number
    finally:
        consumer.close()


def test_aiokafka_writes_and_a_group_reads(cluster: LocalCluster, proxy: str, split_topic: str) -> None:
    async def run() -> list[tuple[int, int]]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=proxy, enable_idempotence=True) as producer:
            sent = [await producer.send(split_topic, b"%d" % it, partition=it % PARTITIONS) for it in range(200)]
            await asyncio.gather(*sent)
        consumer = aiokafka.AIOKafkaConsumer(
            split_topic, bootstrap_servers=proxy, group_id=f"a-{split_topic}", auto_offset_reset="earliest"
        )
        async with consumer:
            found = [await consumer.getone() for _ in range(200)]
            await consumer.commit()
            check_only_proxy(cluster, proxy)
            assert [await consumer.committed(it) for it in consumer.assignment()] == [25] * PARTITIONS
        return [(it.partition, it.offset) for it in found]

    found = asyncio.run(asyncio.wait_for(run(), HANG_GUARD))
    assert sorted(found) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(25)]


def test_administrators_create_describe_and_delete(cluster: LocalCluster, proxy: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": proxy})
    admin.create_topics([NewTopic(topic, 3, 2)])[topic].result(HANG_GUARD)
    eventually(lambda: len(admin.list_topics(topic, timeout=HANG_GUARD).topics[topic].partitions) == 3)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(HANG_GUARD)
    assert configs["cleanup.policy"].value == "delete"
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    assert admin.describe_configs([broker])[broker].result(HANG_GUARD)["num.partitions"].value
    log = GroupLog()
    member = Member(proxy, topic=topic, group=f"d-{topic}", log=log)
    try:
        eventually(lambda: len(member.assigned) == 3, what="a member")
        described = admin.describe_consumer_groups([f"d-{topic}"])[f"d-{topic}"].result(HANG_GUARD)
        assert f"{described.coordinator.host}:{described.coordinator.port}" == proxy
        listed = [it.group_id for it in admin.list_consumer_groups().result(HANG_GUARD).valid]
        assert listed.count(f"d-{topic}") == 1
    finally:
        member.leave()
    admin.delete_consumer_groups([f"d-{topic}"])[f"d-{topic}"].result(HANG_GUARD)
    admin.delete_topics([topic])[topic].result(HANG_GUARD)
    assert topic not in admin.list_topics(timeout=HANG_GUARD).topics

    async def names() -> list[str]:
        client = AIOKafkaAdminClient(bootstrap_servers=proxy)
        await client.start()
        try:
            return await client.list_topics()  # type: ignore[no-any-return]
        finally:
            await client.close()

    assert topic not in asyncio.run(asyncio.wait_for(names(), HANG_GUARD))


def test_a_frame_that_is_none_ends_the_connection_and_no_other(proxy: str, split_topic: str) -> None:
    with KafkaSocket(proxy) as bad, KafkaSocket(proxy) as good:
        bad.socket.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert bad.has_ended()
        values = {"transactional_id": None, "acks": -1, "timeout": i32Timedelta.parse(timedelta(seconds=5))}
        data = [{"name": split_topic, "partition_data": [{"index": 99, "records": b"x"}]}]
        good.send(PRODUCE, 9, 1, topic_data=data, **values)
        _, answer = good.receive(PRODUCE, 9)
        assert answer.responses[0].partition_responses[0].error_code.name == "unknown_topic_or_partition"


@pytest.mark.slow
def test_a_topic_changes_under_clients_of_the_proxy(
    cluster: LocalCluster, client: smq.Client, proxy: str, topic: str
) -> None:
    cluster.create(topic, partitioner="Kafka", partitions=PARTITIONS, segments={"max": 8}, flush={"interval": "200ms"})
    log = GroupLog()
    producer = SteadyProducer(cluster, topic, **{"bootstrap.servers": proxy})
    member = Member(proxy, topic=topic, group=f"g-{topic}", log=log)
    try:
        try:
            changes_of(cluster, client, topic, rounds=1)
        finally:
            producer.stop()
        assert producer.errors == []
        eventually(lambda: log.count() == len(producer.sent), what="all messages in the group")
    finally:
        member.leave()
    assert log.problems == []
    found = read_all(cluster, topic, len(producer.sent))
    check_dense(found)
    assert read_by_key(found) == by_key(producer.sent)
