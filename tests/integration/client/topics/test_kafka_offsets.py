"""Kafka's offsets are dense over rolls, a split, a merge, an upload and a killed broker, with real processes."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import smq
from smq_core.model.kafka_partitioner import kafka_partition_of
from smq_core.model.keyspace import KeyRange
from smq_storage.catalog import sealed_index
from smq_storage.verification.topic_files import TopicFiles
from support.data.sealed_topic import read_stored_topic
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

PARTITIONS = 8
KEYS = [b"key-%d" % n for n in range(40)]


def open_segments(client: smq.Client, topic: str) -> list[str]:
    """Their names, once no segment is pending or being sealed."""

    def quiet() -> list[str]:
        segments = client.admin().segments(topic)
        return [it.name for it in segments] if all(it.phase == "open" for it in segments) else []

    return eventually(quiet, what="all segments open")


def test_offsets_are_dense_through_all_segments(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, partitioner="Kafka", partitions=PARTITIONS, segments={"max": 8}, flush={"interval": "200ms"})
    admin, store = client.admin(), cluster.store.open()
    stored = read_stored_topic(store, f"default/{topic}")
    sent: Counter[int] = Counter()

    def count(keys: list[bytes]) -> None:
        sent.update(kafka_partition_of(key, PARTITIONS) for key in keys)

    def ends() -> dict[int, int]:
        """As the index has them, after all segments have been sealed once more."""
        before = open_segments(client, topic)
        for segment in before:
            admin.roll(topic, segment)
        eventually(lambda: not set(before) & set(open_segments(client, topic)), what="successors of all segments")
        found = sealed_index.load(store, stored.name, stored.uid).partitions
        assert found is not None and found.range == KeyRange(0, PARTITIONS)
        return dict(enumerate(found.ends))

    with client.producer(topic) as producer:
        for key in KEYS:
            producer.send(b"v", key=key)
        producer.write(pa.table({"key": KEYS * 50, "value": [b"w"] * 50 * len(KEYS)})).result(HANG_GUARD)
        producer.flush(HANG_GUARD)
        count(KEYS * 51)
        assert ends() == {partition: sent[partition] for partition in range(PARTITIONS)}

        admin.split(topic, open_segments(client, topic)[0], at=3)
        eventually(lambda: len(open_segments(client, topic)) == 2, what="two segments")
        producer.write(pa.table({"key": KEYS, "value": [b"x"] * len(KEYS)}), by_reference=True).result(HANG_GUARD)
        count(KEYS)
        cluster.kill_broker(sorted(cluster.pids())[0])
        for key in KEYS[:7]:
            producer.send(b"y", key=key)
        producer.flush(HANG_GUARD)
        count(KEYS[:7])

        admin.merge(topic, open_segments(client, topic))
        eventually(lambda: len(open_segments(client, topic)) == 1, what="one segment")
        producer.send(b"z", key=KEYS[0])
        producer.flush(HANG_GUARD)
        count(KEYS[:1])
    assert ends() == {partition: sent[partition] for partition in range(PARTITIONS)}
    checked = TopicFiles(store, stored.name, rows=True)
    assert [str(problem) for problem in checked.problems()] == []
    assert checked.messages == sent.total()
