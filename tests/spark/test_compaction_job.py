"""The compaction as a Spark program, and what Spark reads of a compacted topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import pyspark_smq
import smq
from pyspark_smq.jobs.compact import compact
from pyspark_smq.options import Connection
from smq_storage.catalog import sealed_index
from smq_storage.catalog.topics import read_current_topic
from smq_storage.compaction.superseded_files import delete_superseded
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.tables.segment_files import StoredSegment
from support.processes.local_cluster import LocalCluster
from support.spark.topics import collected, consumed, roll
from support.waiting import HANG_GUARD, eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

ROWS = 400


@pytest.mark.slow
def test_a_compacted_topic_is_read_as_before(
    s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush={"bytes": "64Ki", "interval": "1s"})
    with client.producer(topic) as producer:
        for number in range(ROWS):
            producer.send(str(number).encode() + b" " * 1000, key=str(number % 7).encode())
            if number % 50 == 49:
                producer.flush(HANG_GUARD)
    roll(client, topic)
    store, name = cluster.store.open(), f"default/{topic}"
    current = read_current_topic(store, name)
    assert current is not None
    eventually(lambda: any(e.file_list for e in sealed_index.read(store, name, current.uid)), what="a file list")
    before = consumed(client, topic, ROWS)
    (done,) = compact(s3a, Connection(topic, leader=cluster.address), 32 << 20)
    assert done.switched and done.new_files == 1 < done.merged_files
    frame = pyspark_smq.read(s3a, topic, leader=cluster.address)
    assert collected(frame).equals(before)
    assert any("_compacted" in path for path in frame.inputFiles())
    pyspark_smq.release(frame)
    source = s3a.read.format("smq").options(leader=cluster.address, topic=topic).load()
    assert collected(source).equals(before)

    (entry,) = sealed_index.read(store, name, current.uid)
    deleted = delete_superseded(store, StoredSegment.of(name, current.uid, entry), RetryPolicy(HANG_GUARD))
    assert deleted.complete and deleted.chunks == done.merged_files - 1
    frame = pyspark_smq.read(s3a, topic, leader=cluster.address)
    assert collected(frame).equals(before), "without the small files"
    pyspark_smq.release(frame)
    assert collected(s3a.read.format("smq").options(leader=cluster.address, topic=topic).load()).equals(before)
