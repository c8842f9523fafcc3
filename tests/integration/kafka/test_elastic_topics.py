"""Idempotent Kafka producers over rolls, splits, merges and killed brokers: nothing lost, doubled or reordered."""

from __future__ import annotations

import threading
from collections.abc import Callable

import confluent_kafka
import pytest

import smq
from integration.kafka.clients import PARTITIONS, by_key, check_dense, producer_of, read_all, read_by_key
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

KEYS = [b"key-%d" % number for number in range(40)]


class SteadyProducer:
    """Sends numbered values until it is stopped, in turn to all keys."""

    def __init__(self, cluster: LocalCluster, topic: str, **settings: object) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self.errors: list[confluent_kafka.KafkaError] = []
        self._producer = producer_of(cluster, **{"linger.ms": 2, "message.timeout.ms": 120_000}, **settings)
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.001):
            key, value = KEYS[len(self.sent) % len(KEYS)], b"%d" % len(self.sent)
            self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
            self.sent.append((key, value))
            self._producer.poll(0)

    def _delivered(self, error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            self.errors.append(error)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(2 * HANG_GUARD) == 0


def changes_of(cluster: LocalCluster, client: smq.Client, topic: str, rounds: int = 2) -> None:
    """Splits, rolls and merges the segments of a topic, and kills brokers."""
    admin = client.admin()

    def open_segments() -> list[str]:
        segments = admin.segments(topic)
        return [it.name for it in segments] if all(it.phase == "open" for it in segments) else []

    def change(action: Callable[[list[str]], object]) -> None:
        """Changes open segments. They may be sealed just then, because their broker was killed."""

        def changed() -> bool:
            try:
                action(eventually(open_segments))
            except (smq.InvalidRequest, smq.Unavailable):
                return False
            return True

        eventually(changed, what="a change of segments")

    def count_is(count: int) -> None:
        eventually(lambda: len(open_segments()) == count, what=f"{count} open segments")

    for _ in range(rounds):
        change(lambda segments: admin.split(topic, segments[0], at=3))
        count_is(2)
        before = set(open_segments())
        change(lambda segments: admin.roll(topic, segments[0]))
        eventually(lambda before=before: open_segments() and before != set(open_segments()), what="a successor")
        cluster.kill_broker(sorted(cluster.pids())[0])
        change(lambda segments: admin.merge(topic, segments) if len(segments) == 2 else None)
        count_is(1)


def test_a_topic_changes_under_a_producer_of_librdkafka(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, partitioner="Kafka", partitions=PARTITIONS, segments={"max": 8}, flush={"interval": "200ms"})
    producer = SteadyProducer(cluster, topic)
    try:
        changes_of(cluster, client, topic)
    finally:
        producer.stop()
    assert producer.errors == []
    found = read_all(cluster, topic, len(producer.sent))
    check_dense(found)
    assert read_by_key(found) == by_key(producer.sent)
