"""Kafka's offsets are dense over rolls, a split, a merge, an upload and a killed broker, with real processes.

All messages of a partition are read by these offsets, from any of them, also after the small files were merged.
"""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

import smq
from smq_core.model.entities import SealedSegment
from smq_core.model.kafka_partitioner import kafka_partition_of
from smq_core.model.keyspace import KeyRange
from smq_storage.catalog import paths, sealed_index
from smq_storage.compaction.superseded_files import delete_superseded
from smq_storage.compaction.topic_compaction import compact_topic, merge_here
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.partitions.history import PartitionHistory
from smq_storage.partitions.reader import PartitionReader
from smq_storage.tables.segment_files import StoredSegment
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
    messages: Counter[tuple[int, bytes, bytes]] = Counter()

    def count(keys: list[bytes], value: bytes) -> None:
        sent.update(kafka_partition_of(key, PARTITIONS) for key in keys)
        messages.update((kafka_partition_of(key, PARTITIONS), key, value) for key in keys)

    def entries() -> tuple[SealedSegment, ...]:
        return sealed_index.load(store, stored.name, stored.uid).entries

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
        producer.flush(HANG_GUARD)
        folder = paths.segment_folder(stored.name, stored.uid, open_segments(client, topic)[0])
        eventually(lambda: any(store.list(folder)), what="a chunk, so that there will be several files to merge")
        producer.write(pa.table({"key": KEYS * 50, "value": [b"w"] * 50 * len(KEYS)})).result(HANG_GUARD)
        producer.flush(HANG_GUARD)
        count(KEYS, b"v")
        count(KEYS * 50, b"w")
        assert ends() == {partition: sent[partition] for partition in range(PARTITIONS)}

        admin.split(topic, open_segments(client, topic)[0], at=3)
        eventually(lambda: len(open_segments(client, topic)) == 2, what="two segments")
        producer.write(pa.table({"key": KEYS, "value": [b"x"] * len(KEYS)}), by_reference=True).result(HANG_GUARD)
        count(KEYS, b"x")
        cluster.kill_broker(sorted(cluster.pids())[0])
        for key in KEYS[:7]:
            producer.send(b"y", key=key)
        producer.flush(HANG_GUARD)
        count(KEYS[:7], b"y")

        admin.merge(topic, open_segments(client, topic))
        eventually(lambda: len(open_segments(client, topic)) == 1, what="one segment")
        producer.send(b"z", key=KEYS[0])
        producer.flush(HANG_GUARD)
        count(KEYS[:1], b"z")
    assert ends() == {partition: sent[partition] for partition in range(PARTITIONS)}
    checked = TopicFiles(store, stored.name, rows=True)
    assert [str(problem) for problem in checked.problems()] == []
    assert checked.messages == sent.total()

    reader = PartitionReader(PartitionHistory(store=store, topic=stored))
    check_messages(reader, messages)
    eventually(lambda: all(it.file_list for it in entries()), what="a file list of each sealed segment")
    merged = list(compact_topic(store, stored.name, stored.uid, "key", merge_here(store)))
    assert sum(it.merged_files for it in merged if it.switched) > 1
    check_messages(PartitionReader(PartitionHistory(store=store, topic=stored)), messages)
    for entry in entries():
        segment = StoredSegment.of(stored.name, stored.uid, entry)
        assert delete_superseded(store, segment, RetryPolicy()).complete
    check_messages(reader, messages)


def check_messages(reader: PartitionReader, messages: Counter[tuple[int, bytes, bytes]]) -> None:
    """Each partition has these messages, (partition, key, value). Those of a key are in the order of their values."""
    found: Counter[tuple[int, bytes, bytes]] = Counter()
    for partition in range(PARTITIONS):
        rows = read_partition(reader, partition, 0)
        found.update((partition, key, value) for key, value in rows)
        for key in KEYS:
            values = [value for other, value in rows if other == key]
            assert values == sorted(values)
        for _ in range(2):
            start = random.randrange(len(rows) + 1)
            assert read_partition(reader, partition, start) == rows[start:]
    assert found == messages


def read_partition(reader: PartitionReader, partition: int, offset: int) -> list[tuple[bytes, bytes]]:
    """Key and value of all messages from this offset on. There is no jump, because nothing was lost."""
    rows: list[tuple[bytes, bytes]] = []
    while (part := reader.read_partition(partition, offset, random.randrange(1, 20_000))) is not None:
        assert part.first_offset == offset
        rows += zip(part.rows["key"].to_pylist(), part.rows["value"].to_pylist(), strict=True)
        offset = part.end
    return rows
