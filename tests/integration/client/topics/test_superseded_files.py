"""After a compaction the small files go, and readers, verifications and uploads miss nothing, with real processes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

import smq
from smq_core.model.entities import SealedSegment, Topic
from smq_storage.catalog import paths, sealed_index
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.process.seaweedfs import SeaweedProcess
from smq_storage.tables.file_lists import read_file_list
from smq_storage.tables.pinned_reads import PinnedReads
from smq_storage.tables.segment_files import StoredSegment
from smq_storage.verification.topic_files import TopicFiles
from support.data.sealed_topic import read_stored_topic
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

SOON = (
    *("--cleanup-interval", "100ms", "--superseded-files-grace", "1s", "--orphan-check-interval", "300ms"),
    *("--merge-files-below", "0", "--broker-memory", "4Gi"),
)
CHUNKS, ROWS, UPLOADED = 8, 25, 100


@pytest.fixture
def running(seaweed: SeaweedProcess, prefix: str, tmp_path: object) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster", seaweed.settings(prefix), arguments=SOON) as cluster:  # type: ignore[operator]
        yield cluster


@pytest.fixture
def client(running: LocalCluster) -> Iterator[smq.Client]:
    with running.connect() as connected:
        yield connected


@pytest.fixture
def store(running: LocalCluster) -> Store:
    return running.store.open()


class SmallChunks:
    """A topic with one segment of chunks, rows of an upload, and chunks; the value of a message is its offset."""

    def __init__(self, running: LocalCluster, client: smq.Client, store: Store, name: str = "t") -> None:
        running.create(name, flush={"bytes": "64Mi", "interval": "100ms"})
        self.client, self.store, self.name = client, store, name
        self.topic: Topic = read_stored_topic(store, f"default/{name}")
        (self.segment,) = [it.name for it in client.admin().segments(name)]
        self.total = 0
        with client.producer(name) as producer:
            self._write_chunks(producer)
            rows = pa.table({"value": [self._value() for _ in range(UPLOADED)], "key": [b"k"] * UPLOADED})
            producer.write(rows, by_reference=True).result(HANG_GUARD)
            self._write_chunks(producer)

    def _value(self) -> bytes:
        self.total += 1
        return b"%09d" % (self.total - 1) + b" " * 200

    def _write_chunks(self, producer: smq.Producer) -> None:
        for _ in range(CHUNKS):
            before = len(self.chunks())
            for _ in range(ROWS):
                producer.send(self._value(), key=b"k")
            producer.flush(HANG_GUARD)
            eventually(lambda before=before: len(self.chunks()) > before, what="another chunk")  # type: ignore[misc]

    def chunks(self) -> list[int]:
        folder = paths.segment_folder(self.topic.name, self.topic.uid, self.segment)
        return sorted(paths.first_offset(it.path) or 0 for it in self.store.list(folder))

    def entry(self) -> SealedSegment:
        entries = sealed_index.read(self.store, self.topic.name, self.topic.uid)
        return next(it for it in entries if it.name == self.segment)

    def seal(self) -> None:
        self.client.admin().roll(self.name, self.segment)
        eventually(lambda: bool(self.entry().file_list), what="a file list")

    def compact(self) -> None:
        (done,) = self.client.compact(self.name)
        assert done.switched

    def seal_and_compact(self) -> list[int]:
        """Returns the first offsets of the files that the file list has then."""
        self.seal()
        self.compact()
        return self.files_of_file_list()

    def files_of_file_list(self) -> list[int]:
        """Their first offsets."""
        file_list = read_file_list(self.store, self.topic.name, self.topic.uid, self.entry().file_list)
        assert file_list is not None
        return [file.first for file in file_list.files]

    def wait_for_deletion(self, kept: list[int]) -> None:
        def deleted() -> bool:
            assert self.chunks() == [*kept, self.total]
            record = self.entry().superseded
            return record is not None and record.deleted

        eventually(deleted, what="the superseded chunks are deleted")

    def check_files(self) -> None:
        assert [it for rows in (False, True) for it in TopicFiles(self.store, "default/t", rows=rows).problems()] == []
        assert len(list(self.store.list(paths.uploads_folder(self.topic.uid)))) == 1


def offsets_of(batches: list[smq.Batch], start: int = 0) -> list[int]:
    """The offsets of the messages; checks that each has the value that was published there."""
    found = []
    for batch in batches:
        values = [int(value) for value in batch.table.column("value").to_pylist()]
        assert values == list(range(batch.first_offset, batch.first_offset + len(batch)))
        found += values
    assert found == list(range(start, start + len(found)))
    return found


def read_until(consumer: smq.Consumer, end: int, position: int = 0) -> list[smq.Batch]:
    batches = []
    while position < end:
        batch = consumer.poll(HANG_GUARD)
        assert batch is not None
        batches.append(batch)
        position += batch.table.num_rows
    return batches


@pytest.mark.slow
def test_small_files_go_and_all_readers_get_each_message_at_its_offset(
    running: LocalCluster, client: smq.Client, store: Store
) -> None:
    written = SmallChunks(running, client, store)
    with client.consumer("t", max_bytes=2_000, prefetch_bytes=4_000) as reading:
        first = read_until(reading, 1)
        kept = written.seal_and_compact()
        assert len(kept) == 3, "merged, the upload, merged"
        written.wait_for_deletion(kept)
        position = sum(it.table.num_rows for it in first)
        rest = read_until(reading, written.total, position)
        assert offsets_of([*first, *rest]) == list(range(written.total))
    with client.consumer("t") as fresh:
        assert len(offsets_of(read_until(fresh, written.total))) == written.total
    with client.consumer("t", start={written.segment: 37}) as later:
        assert len(offsets_of(read_until(later, written.total, 37), 37)) == written.total - 37
    written.check_files()
    files = client.files("t")
    assert files.rows == written.total
    with client.producer("t") as producer:
        producer.send(written._value(), key=b"k")
        producer.flush(HANG_GUARD)
    with client.consumer("t") as fresh:
        read_until(fresh, written.total)
    assert list(client.compact("t")) == [], "nothing is left for a compaction"
    written.check_files()


@pytest.mark.slow
def test_a_damaged_file_list_of_merged_files_costs_no_message(
    running: LocalCluster, client: smq.Client, store: Store
) -> None:
    written = SmallChunks(running, client, store)
    written.wait_for_deletion(written.seal_and_compact())
    path = paths.file_list(written.topic.name, written.topic.uid, written.entry().file_list)
    store.put(path, b"damaged")
    with client.consumer("t") as fresh:
        assert len(offsets_of(read_until(fresh, written.total))) == written.total
    assert [it.path for it in TopicFiles(store, "default/t").problems()] == [path]


@pytest.mark.slow
def test_a_pinned_read_keeps_the_small_files_until_it_ends(
    running: LocalCluster, client: smq.Client, store: Store
) -> None:
    written, unpinned = SmallChunks(running, client, store), SmallChunks(running, client, store, "unpinned")
    before = written.chunks()
    reads = PinnedReads(store, lambda: uuid.uuid4().hex, lambda: time.monotonic_ns() // 1000, RetryPolicy())
    written.seal()
    with reads.begin(written.topic.name, written.topic.uid, "a test") as read:
        planned = StoredSegment.of(written.topic.name, written.topic.uid, written.entry())
        written.compact()
        eventually(lambda: written.entry().superseded is not None, what="the record")
        unpinned.wait_for_deletion(unpinned.seal_and_compact())
        later, record = unpinned.entry().superseded, written.entry().superseded
        assert later is not None and record is not None and not record.deleted
        assert later.since >= record.since and later.filer_since >= record.filer_since
        assert written.chunks() == [*before, written.total], "those of the other topic were due later, and are gone"
        parts = list(read.read_range(planned, 0, written.total))
        assert sum(table.num_rows for _, table in parts) == written.total
    written.wait_for_deletion(written.files_of_file_list())
    written.check_files()
