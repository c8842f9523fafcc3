"""The leader merges the small files of sealed segments by itself, and readers get every message once, in order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import smq
from smq_core.file_lists.file_list import FileList
from smq_core.file_lists.small_files import MIN_FILES
from smq_core.model.entities import SealedSegment
from smq_storage.catalog import paths, sealed_index
from smq_storage.object_store.store import Store
from smq_storage.process.seaweedfs import SeaweedProcess
from smq_storage.tables.file_lists import read_file_list
from support.data.message_ledger import MessageLedger, check_deliveries, read_back
from support.data.sealed_topic import read_stored_topic
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

CHUNKS = MIN_FILES + 4
AT_ONCE = ("--merge-files-after", "100ms", "--broker-memory", "4Gi")


@pytest.fixture(scope="module")
def cluster(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, seaweed.settings(f"small-files-{folder.name}"), arguments=AT_ONCE) as running:
        yield running


@pytest.fixture
def store(cluster: LocalCluster) -> Store:
    return cluster.store.open()


def write_small_chunks(client: smq.Client, store: Store, topic: str, ledger: MessageLedger) -> None:
    """Writes to every open segment until each of them has many chunks."""
    made = read_stored_topic(store, f"default/{topic}")
    folders = [paths.segment_folder(made.name, made.uid, it.name) for it in client.admin().segments(topic)]

    def chunks() -> int:
        return min(sum(1 for _ in store.list(folder)) for folder in folders)

    with client.producer(topic) as producer:
        while (before := chunks()) < CHUNKS:
            ledger.send(producer, ledger.keys)  # each segment gets some of the keys
            producer.flush(HANG_GUARD)
            eventually(lambda before=before: chunks() > before, what="another chunk")  # type: ignore[misc]


def merged_file_lists(store: Store, topic: str, sealed: int) -> list[FileList]:
    """Waits until that many segments are sealed, and all of them are merged."""
    made = read_stored_topic(store, f"default/{topic}")

    def file_list(entry: SealedSegment) -> FileList:
        found = read_file_list(store, made.name, made.uid, entry.file_list) if entry.file_list else None
        assert found is not None and len(found.files) < CHUNKS, f"{entry.name} is not merged yet"
        return found

    def all_merged() -> list[FileList]:
        entries = sealed_index.read(store, made.name, made.uid)
        assert len(entries) == sealed
        return [file_list(entry) for entry in entries]

    return eventually(all_merged, what=f"{sealed} segments are merged")


@pytest.mark.slow
def test_many_small_chunks_become_few_files_with_the_same_messages(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic, flush={"bytes": "64Ki", "interval": "100ms"})
    ledger = MessageLedger()
    write_small_chunks(client, store, topic, ledger)
    with client.consumer(topic, max_bytes=500) as reading:
        first = reading.poll(HANG_GUARD)
        assert first is not None
        (segment,) = client.admin().segments(topic)
        client.admin().split(topic, segment.name)
        eventually(lambda: len(client.admin().segments(topic)) == 2, what="the segment is split")
        write_small_chunks(client, store, topic, ledger)
        for segment in client.admin().segments(topic):
            client.admin().roll(topic, segment.name)
        file_lists = merged_file_lists(store, topic, sealed=3)
        assert all(paths.is_compacted(file.path) for file_list in file_lists for file in file_list.files[:1])
        check_deliveries(ledger, [first, *read_back(reading, ledger.total - first.table.num_rows)])
    with client.consumer(topic) as fresh:
        check_deliveries(ledger, read_back(fresh, ledger.total))
    assert list(client.topic_files(topic, rows=True).problems()) == []
    assert list(client.compact(topic)) == [], "nothing is left for a compaction"
