"""Kafka's own command-line tools: topics, configuration, groups, offsets, verifiable producer and consumer."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator

import pytest

from integration.kafka.clients import bootstrap
from integration.kafka.java_tools import JavaTools
from support.processes.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
PRODUCER, CONSUMER = "org.apache.kafka.tools.VerifiableProducer", "org.apache.kafka.tools.VerifiableConsumer"
COUNT = 2000


@pytest.fixture
def tools(cluster: LocalCluster) -> Iterator[JavaTools]:
    with JavaTools(bootstrap(cluster)) as running:
        yield running


def rows(printed: str) -> list[dict[str, str]]:
    """A table with a heading that some lines may precede."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    at = next(number for number, words in enumerate(lines) if words[0] == "GROUP")
    return [dict(zip(lines[at], words, strict=False)) for words in lines[at + 1 :]]


def events(printed: str, name: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [event for event in found if event["name"] == name]


def test_the_tools_of_kafka(tools: JavaTools) -> None:
    topic = f"Java_Topic.{uuid.uuid4().hex[:8]}"
    group = f"g-{topic}"
    tools.run(TOPICS, "--create", "--topic", topic, "--partitions", 4, "--replication-factor", 2)
    assert topic in tools.run(TOPICS, "--list").split()
    described = tools.run(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 4" in described and len(re.findall(r"Leader: \d+", described)) == 4, described

    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools.run(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=3600000")
    assert "retention.ms=3600000" in tools.run(CONFIGS, "--describe", *entity)

    sent = tools.run_alone(PRODUCER, "--topic", topic, "--max-messages", COUNT, "--acks", -1)
    assert len(events(sent, "producer_send_success")) == COUNT
    read = tools.run_alone(
        CONSUMER, "--topic", topic, "--group-id", group, "--max-messages", COUNT, "--reset-policy", "earliest"
    )
    assert sum(int(str(it["count"])) for it in events(read, "records_consumed")) == COUNT

    ends = [int(line.rsplit(":", 1)[1]) for line in tools.run(OFFSETS, "--topic", topic).split()]
    assert len(ends) == 4 and sum(ends) == COUNT
    assert group in tools.run(GROUPS, "--list").split()
    assert {it["LAG"] for it in rows(tools.run(GROUPS, "--describe", "--group", group))} == {"0"}
    tools.run(GROUPS, "--reset-offsets", "--to-earliest", "--execute", "--group", group, "--topic", topic)
    lags = [int(it["LAG"]) for it in rows(tools.run(GROUPS, "--describe", "--group", group))]
    assert sorted(lags) == sorted(ends)

    tools.run(TOPICS, "--delete", "--topic", topic)
    assert topic not in tools.run(TOPICS, "--list").split()


def test_java_members_of_the_consumer_protocol(tools: JavaTools) -> None:
    topic = f"java-{uuid.uuid4().hex[:8]}"
    group, consumer = f"g-{topic}", ("--group-protocol", "consumer")
    tools.run(TOPICS, "--create", "--topic", topic, "--partitions", 4, "--replication-factor", 2)
    tools.run_alone(PRODUCER, "--topic", topic, "--max-messages", COUNT, "--acks", -1)
    settings = ("--topic", topic, "--group-id", group, "--max-messages", COUNT, "--reset-policy", "earliest")
    read = tools.run_alone(CONSUMER, *settings, *consumer)
    assert sum(int(str(it["count"])) for it in events(read, "records_consumed")) == COUNT

    assert group in tools.run(GROUPS, "--list", "--type", "consumer")
    assert group not in tools.run(GROUPS, "--list", "--type", "classic")
    assert {it["LAG"] for it in rows(tools.run(GROUPS, "--describe", "--group", group))} == {"0"}
    (state,) = rows(tools.run(GROUPS, "--describe", "--state", "--group", group))
    assert state["STATE"] == "Empty", state
    tools.run(GROUPS, "--delete", "--group", group)
    assert group not in tools.run(GROUPS, "--list")
