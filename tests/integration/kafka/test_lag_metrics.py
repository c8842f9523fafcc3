"""The leader's metrics show the lag of groups of Kafka clients, beside those of the library."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import confluent_kafka
import pytest

import smq
from integration.kafka.clients import PARTITIONS, bootstrap
from integration.kafka.test_groups import produce
from smq_storage.process.ports import free_port
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def http() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def cluster(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory, http: str) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("lags")
    arguments = ("--broker-memory", "1Gi", "--http", http, "--broker-arg=--kafka=127.0.0.1:0")
    with LocalCluster(folder, seaweed.settings(folder.name), brokers=2, arguments=arguments) as running:
        yield running


def test_the_lag_of_both_kinds_of_groups_is_shown(
    cluster: LocalCluster, client: smq.Client, topic: str, http: str
) -> None:
    """All messages are in memory only at first: nothing is flushed before a minute has passed."""
    spec = {"partitioner": "Kafka", "partitions": PARTITIONS, "segments": {"max": 8}, "flush": {"interval": "1m"}}
    cluster.create(topic, **spec)

    def shown(name: str, group: str, kind: str) -> float | None:
        with urllib.request.urlopen(f"http://{http}/metrics") as answer:
            text = answer.read().decode()
        line = rf'^{name}{{group="{group}",kind="{kind}",topic="default/{topic}"}} (\S+)$'
        found = re.findall(line, text, re.MULTILINE)
        return float(found[0]) if found else None

    group = f"kafka-{topic}"
    produce(cluster, topic, 10 * PARTITIONS)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap(cluster), "group.id": group})
    offsets = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    consumer.commit(offsets=offsets, asynchronous=False)
    eventually(
        lambda: shown("smq_group_lag_messages", group, "Kafka") == 10 * PARTITIONS, what="the lag of what is in memory"
    )
    age = eventually(lambda: shown("smq_group_lag_seconds", group, "Kafka"), what="its age")
    assert age is not None and age < 600
    (segment,) = client.admin().segments(topic)
    client.admin().roll(topic, segment.name)
    for it in offsets:
        it.offset = 4
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    eventually(
        lambda: shown("smq_group_lag_messages", group, "Kafka") == 6 * PARTITIONS, what="the lag of what is in files"
    )
    with client.consumer(topic, group="own"):
        eventually(lambda: shown("smq_group_lag_messages", "own", "smq") is not None, what="a group of the library")
    assert shown("smq_group_members", group, "Kafka") is None
