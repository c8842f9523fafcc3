"""Consumer groups of unmodified Kafka clients: shared partitions, commits, a coordinator that is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from integration.kafka.group_members import GroupLog, Member
from integration.kafka.test_clients import PARTITIONS, bootstrap, kafka_topic, producer_of
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

__all__ = ["kafka_topic"]

pytestmark = pytest.mark.integration

# A member that joins, reads and commits nothing, until it is killed.
KILLED_MEMBER = """
import sys, confluent_kafka
bootstrap, topic, group = sys.argv[1:]
consumer = confluent_kafka.Consumer({
    "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
    "enable.auto.commit": False, "session.timeout.ms": 6000, "heartbeat.interval.ms": 500,
})
consumer.subscribe([topic], on_assign=lambda _, partitions: print(len(partitions), flush=True))
while True:
    consumer.poll(0.5)
"""


@pytest.fixture
def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap(cluster)})


@pytest.fixture
def killed_member(cluster: LocalCluster, kafka_topic: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", KILLED_MEMBER, bootstrap(cluster), kafka_topic, f"g-{kafka_topic}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
        try:
            yield member
        finally:
            member.kill()


def produce(cluster: LocalCluster, topic: str, count: int) -> None:
    producer = producer_of(cluster)
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(HANG_GUARD) == 0


def check_shared(members: list[Member]) -> bool:
    """Whether each partition has one member, and each member has some."""
    assigned = [set(it.assigned) for it in members]
    return all(assigned) and sorted(at for it in assigned for at in it) == list(range(PARTITIONS))


def committed(cluster: LocalCluster, topic: str, group: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap(cluster), "group.id": group})
    try:
        wanted = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
        return [it.offset for it in consumer.committed(wanted, timeout=30)]
    finally:
        consumer.close()


def coordinator(cluster: LocalCluster, admin: AdminClient, group: str) -> str:
    """The name of the broker."""
    described = admin.describe_consumer_groups([group])[group].result(30)
    address = f"{described.coordinator.host}:{described.coordinator.port}"
    return next(name for name in cluster.pids() if cluster.kafka_address(name) == address)


def test_members_share_partitions_over_departures_kills_and_a_new_coordinator(
    cluster: LocalCluster, kafka_topic: str, admin: AdminClient, killed_member: subprocess.Popen[str]
) -> None:
    group, log = f"g-{kafka_topic}", GroupLog()
    members = [Member(bootstrap(cluster), topic=kafka_topic, group=group, log=log) for _ in range(3)]
    try:
        assert killed_member.stdout is not None and killed_member.stdout.readline()
        eventually(lambda: len({at for it in members for at in it.assigned}) < PARTITIONS, "four members")
        produce(cluster, kafka_topic, 400)
        killed_member.kill()
        eventually(lambda: check_shared(members), "three members after a kill")
        eventually(lambda: log.count() == 400, "messages of the killed member")

        members.pop().leave()
        eventually(lambda: check_shared(members), "two members after one has left")
        produce(cluster, kafka_topic, 400)
        eventually(lambda: log.count() == 800, "messages of the one that has left")
        eventually(lambda: committed(cluster, kafka_topic, group) == [100] * PARTITIONS, "commits")

        cluster.kill_broker(coordinator(cluster, admin, group))
        eventually(lambda: committed(cluster, kafka_topic, group) == [100] * PARTITIONS, "commits after a kill")
        produce(cluster, kafka_topic, 400)
        eventually(lambda: log.count() == 1200, "messages after the coordinator was killed")
        eventually(lambda: check_shared(members), "two members at the new coordinator")
        eventually(lambda: committed(cluster, kafka_topic, group) == [150] * PARTITIONS, "commits")
    finally:
        for it in members:
            it.leave()
    assert log.problems == []
    assert {at: sorted(it) for at, it in log.read.items()} == {at: list(range(150)) for at in range(PARTITIONS)}


def test_members_of_aiokafka_share_partitions(cluster: LocalCluster, kafka_topic: str) -> None:
    produce(cluster, kafka_topic, 80)

    async def run() -> None:
        consumers = [
            aiokafka.AIOKafkaConsumer(
                kafka_topic,
                bootstrap_servers=bootstrap(cluster),
                group_id=f"a-{kafka_topic}",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            for _ in range(2)
        ]
        await asyncio.gather(*(it.start() for it in consumers))
        found: set[tuple[int, int]] = set()
        try:
            while len(found) < 80:
                for it in consumers:
                    for partition, messages in (await it.getmany(timeout_ms=200)).items():
                        found |= {(partition.partition, one.offset) for one in messages}
                    if it.assignment():
                        await it.commit()
            assert all(it.assignment() for it in consumers)
            assert sum(len(it.assignment()) for it in consumers) == PARTITIONS
        finally:
            await asyncio.gather(*(it.stop() for it in consumers))

    asyncio.run(asyncio.wait_for(run(), HANG_GUARD))
    assert committed(cluster, kafka_topic, f"a-{kafka_topic}") == [10] * PARTITIONS


def test_administrators_reset_list_and_delete_groups(
    cluster: LocalCluster, kafka_topic: str, admin: AdminClient
) -> None:
    produce(cluster, kafka_topic, 80)
    group, log = f"r/{kafka_topic} ü", GroupLog()
    member = Member(bootstrap(cluster), topic=kafka_topic, group=group, log=log)
    offsets = [confluent_kafka.TopicPartition(kafka_topic, number, 4) for number in range(PARTITIONS)]
    wanted = [confluent_kafka.ConsumerGroupTopicPartitions(group, offsets)]
    try:
        eventually(lambda: log.count() == 80, "all messages")
        refused = admin.alter_consumer_group_offsets(wanted)[group].result(30)
        assert {it.error.code() for it in refused.topic_partitions} == {confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID}
        with pytest.raises(confluent_kafka.KafkaException):
            admin.delete_consumer_groups([group])[group].result(30)
        described = admin.describe_consumer_groups([group])[group].result(30)
        assert described.state is confluent_kafka.ConsumerGroupState.STABLE
        assert len(described.members) == 1
        assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
    finally:
        member.leave()

    eventually(lambda: committed(cluster, kafka_topic, group) == [10] * PARTITIONS)
    admin.alter_consumer_group_offsets(wanted)[group].result(30)
    assert committed(cluster, kafka_topic, group) == [4] * PARTITIONS
    again = GroupLog(committed=dict.fromkeys(range(PARTITIONS), 4))
    member = Member(bootstrap(cluster), topic=kafka_topic, group=group, log=again)
    try:
        eventually(lambda: again.count() == 48, "the messages from the new offsets on")
    finally:
        member.leave()
    assert again.problems == []

    listed = admin.list_consumer_groups().result(30)
    assert [it.state for it in listed.valid if it.group_id == group] == [confluent_kafka.ConsumerGroupState.EMPTY]
    admin.delete_consumer_groups([group])[group].result(30)
    assert committed(cluster, kafka_topic, group) == [-1001] * PARTITIONS
    assert group not in {it.group_id for it in admin.list_consumer_groups().result(30).valid}


def test_offsets_of_partitions_that_there_are_not_are_refused(cluster: LocalCluster, kafka_topic: str) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap(cluster), "group.id": f"u-{kafka_topic}"})
    wanted = [
        confluent_kafka.TopicPartition(kafka_topic, 0, 3),
        confluent_kafka.TopicPartition(kafka_topic, PARTITIONS, 3),
        confluent_kafka.TopicPartition("no-such-topic", 0, 3),
    ]
    try:
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            consumer.commit(offsets=wanted, asynchronous=False)
        assert refused.value.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    finally:
        consumer.close()
    assert committed(cluster, kafka_topic, f"u-{kafka_topic}") == [3] + [-1001] * (PARTITIONS - 1)
