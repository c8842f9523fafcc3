"""One consumer of several topics, and of all that match a pattern, on a real cluster."""

from __future__ import annotations

import re
from collections import Counter

import pytest

import smq
from smq import topics_consumer
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD

pytestmark = pytest.mark.integration


def send(client: smq.Client, topic: str, count: int) -> None:
    with client.producer(topic) as producer:
        for number in range(count):
            producer.send(b"%s %d" % (topic.encode(), number))


def read(consumer: smq.TopicsConsumer, count: int) -> Counter[tuple[str, bytes]]:
    """``count`` messages, by their topics."""
    found: Counter[tuple[str, bytes]] = Counter()
    while found.total() < count:
        batch = consumer.poll(HANG_GUARD)
        assert batch is not None
        found.update((batch.topic, value) for value in batch.table.column("value").to_pylist())
    return found


def sent(topic: str, first: int, stop: int) -> Counter[tuple[str, bytes]]:
    return Counter((f"default/{topic}", b"%s %d" % (topic.encode(), number)) for number in range(first, stop))


def test_messages_of_all_topics_come_once_each(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    one, two = f"{topic}-a", f"{topic}-b"
    for name in (one, two):
        cluster.create(name)
        send(client, name, 20)
    with client.topics_consumer([one, two]) as consumer:
        assert read(consumer, 40) == sent(one, 0, 20) + sent(two, 0, 20)
        assert consumer.topics == {f"default/{one}", f"default/{two}"}
        positions = consumer.positions
        send(client, two, 5)
        assert read(consumer, 5) == sent(two, 0, 5)
        consumer[f"default/{one}"].seek({next(iter(positions[f"default/{one}"])): 15})
        assert read(consumer, 5).total() == 5
    with client.topics_consumer([one, two], start=positions) as again:
        assert read(again, 5) == sent(two, 0, 5)
        assert again.poll(0) is None


def test_a_group_of_several_topics_goes_on_where_it_committed(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    names = [f"{topic}-a", f"{topic}-b"]
    for name in names:
        cluster.create(name)
        send(client, name, 10)
    with client.topics_consumer(names, group="report") as consumer:
        read(consumer, 20)
        assert consumer.commit().keys() == {f"default/{name}" for name in names}
    for name in names:
        send(client, name, 3)
    with client.topics_consumer(names, group="report") as consumer:
        assert read(consumer, 6) == sent(names[0], 0, 3) + sent(names[1], 0, 3)


def test_a_pattern_finds_later_topics_and_forgets_deleted_ones(
    cluster: LocalCluster, client: smq.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_consumer, "REFRESH_SECONDS", 0.1)
    one, two, other = f"{topic}-in-1", f"{topic}-in-2", f"{topic}-out"
    for name in (one, other):
        cluster.create(name)
        send(client, name, 3)
    with client.topics_consumer(re.compile(rf"{topic}-in-.*")) as consumer:
        assert read(consumer, 3) == sent(one, 0, 3)
        cluster.create(two)
        send(client, two, 3)
        assert read(consumer, 3) == sent(two, 0, 3)
        client.admin().delete(one)
        send(client, two, 2)
        found = read(consumer, 2)
        while f"default/{one}" in consumer.topics:
            assert consumer.poll(0.1) is None
        assert found == sent(two, 0, 2)


def test_a_deleted_topic_of_a_list_is_an_error(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    names = [f"{topic}-a", f"{topic}-b"]
    for name in names:
        cluster.create(name)
    with client.topics_consumer(names) as consumer:
        client.admin().delete(names[0])
        with pytest.raises(smq.UnknownTopic, match=names[0]):
            consumer.poll(HANG_GUARD)


def test_wrong_arguments_are_refused(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with pytest.raises(smq.InvalidRequest, match="topics_consumer"):
        client.consumer([topic])  # type: ignore[arg-type]
    with pytest.raises(smq.InvalidRequest, match="at least one topic"):
        client.topics_consumer([])
    with pytest.raises(smq.InvalidRequest, match=f"twice: default/{topic}"):
        client.topics_consumer([topic, f"default/{topic}"])
    with pytest.raises(smq.InvalidRequest, match="of one topic"):
        client.topics_consumer([topic], segments=["x"])
    with pytest.raises(smq.UnknownTopic):
        client.topics_consumer([topic, "no-such-topic"])
