"""A topic is compacted while it is read and written; its readers see the same messages."""

from __future__ import annotations

import pytest

import smq
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.topics import read_current_topic
from smq_storage.tables.file_lists import read_file_list
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

ROWS = 600


def test_a_compacted_topic_has_the_same_messages(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush={"bytes": "64Ki", "interval": "1s"})
    with client.producer(topic) as producer, client.consumer(topic, max_bytes=20_000) as reading:
        for number in range(ROWS):
            producer.send(str(number).encode() + b" " * 1000, key=str(number % 7).encode())
            if number % 50 == 49:
                producer.flush(HANG_GUARD)
        first = reading.poll()
        assert first is not None
        (segment,) = client.admin().segments(topic)
        client.admin().roll(topic, segment.name)
        store, name = cluster.store.open(), f"default/{topic}"
        current = read_current_topic(store, name)
        assert current is not None
        eventually(lambda: any(e.file_list for e in sealed_index.read(store, name, current.uid)), what="a file list")
        (done,) = client.compact(topic)
        assert done.switched and done.new_files == 1 < done.merged_files
        producer.send(b"last")
        producer.flush(HANG_GUARD)
        (entry,) = sealed_index.read(store, name, current.uid)
        file_list = read_file_list(store, name, current.uid, entry.file_list)
        assert file_list is not None and paths.is_compacted(file_list.files[0].path)
        rest = read_back(reading, ROWS + 1 - first.table.num_rows)
        with client.consumer(topic) as again:
            fresh = read_back(again, ROWS + 1)
        for batches in ([first, *rest], fresh):
            values = [v for b in batches for v in b.table.column("value").to_pylist()]
            assert [int(v) for v in values[:-1]] == list(range(ROWS)), "one segment, so the order of all messages"
            assert values[-1] == b"last"
        assert list(client.compact(topic)) == []
        assert list(client.topic_files(topic, rows=True).problems()) == []
