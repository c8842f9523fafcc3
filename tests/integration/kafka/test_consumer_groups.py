"""Groups of unmodified clients with ``group.protocol=consumer``: the coordinator assigns the partitions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from integration.kafka.group_members import GroupLog, Member
from integration.kafka.test_clients import PARTITIONS, bootstrap, kafka_topic
from integration.kafka.test_groups import admin, check_shared, committed, coordinator, produce
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

__all__ = ["admin", "kafka_topic"]

pytestmark = pytest.mark.integration

CONSUMER = {"group.protocol": "consumer"}
# A member that joins, reads and commits nothing, until it is killed.
KILLED_MEMBER = """
import sys, confluent_kafka
bootstrap, topic, group = sys.argv[1:]
consumer = confluent_kafka.Consumer({
    "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
    "enable.auto.commit": False, "group.protocol": "consumer",
})
consumer.subscribe([topic], on_assign=lambda _, partitions: print(len(partitions), flush=True))
while True:
    consumer.poll(0.5)
"""


@pytest.fixture
def killed_member(cluster: LocalCluster, kafka_topic: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", KILLED_MEMBER, bootstrap(cluster), kafka_topic, f"g-{kafka_topic}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
        try:
            yield member
        finally:
            member.kill()


def consumer_of(cluster: LocalCluster, group: str, **settings: object) -> confluent_kafka.Consumer:
    defaults = {"bootstrap.servers": bootstrap(cluster), "group.id": group, "auto.offset.reset": "earliest"}
    return confluent_kafka.Consumer({**defaults, **CONSUMER, **settings})


@pytest.mark.slow
def test_members_share_partitions_over_departures_kills_and_a_new_coordinator(
    cluster: LocalCluster, kafka_topic: str, admin: AdminClient, killed_member: subprocess.Popen[str]
) -> None:
    group, log = f"g-{kafka_topic}", GroupLog()
    assert killed_member.stdout is not None and killed_member.stdout.readline()
    members = [Member(bootstrap(cluster), topic=kafka_topic, group=group, log=log, **CONSUMER) for _ in range(3)]
    try:
        eventually(lambda: all(it.assigned for it in members), "four members")
        produce(cluster, kafka_topic, 400)
        killed_member.kill()
        eventually(lambda: check_shared(members), "three members after a kill")
        eventually(lambda: log.count() == 400, "messages of the killed member")

        members.pop().leave()
        eventually(lambda: check_shared(members), "two members after one has left")
        produce(cluster, kafka_topic, 400)
        eventually(lambda: log.count() == 800, "messages of the one that has left")
        eventually(lambda: committed(cluster, kafka_topic, group) == [100] * PARTITIONS, "commits")

        before = [set(it.assigned) for it in members]
        cluster.kill_broker(coordinator(cluster, admin, group))
        eventually(lambda: committed(cluster, kafka_topic, group) == [100] * PARTITIONS, "commits after a kill")
        produce(cluster, kafka_topic, 400)
        eventually(lambda: log.count() == 1200, "messages after the coordinator was killed")
        eventually(lambda: committed(cluster, kafka_topic, group) == [150] * PARTITIONS, "commits")
        assert [set(it.assigned) for it in members] == before, "the next coordinator knows the members"
    finally:
        for it in members:
            it.leave()
    assert log.problems == []
    assert {at: sorted(it) for at, it in log.read.items()} == {at: list(range(150)) for at in range(PARTITIONS)}


def test_a_member_seeks_and_administrators_see_the_group(
    cluster: LocalCluster, kafka_topic: str, admin: AdminClient
) -> None:
    produce(cluster, kafka_topic, 80)
    group = f"s-{kafka_topic}"
    consumer = consumer_of(cluster, group)
    consumer.subscribe([kafka_topic])
    try:
        found: list[int] = []

        def read(count: int) -> bool:
            found.extend(it.offset() for it in consumer.consume(100, timeout=0.5) if it.error() is None)
            return len(found) >= count

        eventually(lambda: read(80), "all messages")
        consumer.commit(asynchronous=False)
        found.clear()
        consumer.seek(confluent_kafka.TopicPartition(kafka_topic, 0, 3))
        eventually(lambda: read(7), "the messages from there on")
        assert found == list(range(3, 10))

        types = {confluent_kafka.ConsumerGroupType.CONSUMER}
        listed = [it for it in admin.list_consumer_groups(types=types).result(30).valid if it.group_id == group]
        assert [(it.type, it.state.name) for it in listed] == [(confluent_kafka.ConsumerGroupType.CONSUMER, "STABLE")]
        with pytest.raises(confluent_kafka.KafkaException):
            admin.delete_consumer_groups([group])[group].result(30)
    finally:
        consumer.close()
    assert committed(cluster, kafka_topic, group) == [10] * PARTITIONS
    admin.delete_consumer_groups([group])[group].result(30)
    assert committed(cluster, kafka_topic, group) == [-1001] * PARTITIONS


def test_a_pattern_finds_topics_and_static_members_keep_their_partitions(
    cluster: LocalCluster, kafka_topic: str
) -> None:
    produce(cluster, kafka_topic, 80)
    group = f"p-{kafka_topic}"

    def read() -> set[tuple[int, int]]:
        consumer = consumer_of(cluster, group, **{"group.instance.id": "one", "enable.auto.commit": False})
        consumer.subscribe([f"^{kafka_topic[:-1]}[{kafka_topic[-1]}]$"])
        found: set[tuple[int, int]] = set()

        def take() -> bool:
            found.update((it.partition(), it.offset()) for it in consumer.consume(100, timeout=0.5) if not it.error())
            return len(found) == 80

        try:
            eventually(take, "all messages")
        finally:
            consumer.close()
        return found

    assert read() == read(), "the instance comes back before its session has ended"


def test_members_of_the_two_protocols_share_no_group(cluster: LocalCluster, kafka_topic: str) -> None:
    group, log = f"c-{kafka_topic}", GroupLog()
    member = Member(bootstrap(cluster), topic=kafka_topic, group=group, log=log)
    seen: list[str] = []
    consumer = consumer_of(cluster, group, error_cb=lambda error: seen.append(str(error)))
    try:
        eventually(lambda: len(member.assigned) == PARTITIONS, "a member of the classic protocol")
        consumer.subscribe([kafka_topic])

        def refused() -> bool:
            try:
                message = consumer.poll(0.2)
                if message is not None:
                    seen.append(str(message.error()))
            except confluent_kafka.KafkaException as error:
                seen.append(str(error))
            return any("group id does not exist" in it for it in seen)

        eventually(refused, "a refusal")
    finally:
        member.leave()
        consumer.close()
    following = consumer_of(cluster, group)
    following.subscribe([kafka_topic])
    try:
        eventually(lambda: following.poll(0.2) is None and len(following.assignment()) == PARTITIONS, "the protocol")
    finally:
        following.close()
