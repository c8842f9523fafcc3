"""Files are deleted by their file list, and file lists are deleted with their segment or when they are orphaned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from smq_core.errors import CorruptChunk
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import RemovedSegment, SealedSegment, Topic
from smq_core.model.reference import Reference
from smq_operator.cleanup.deleted_topics import delete_topic
from smq_operator.cleanup.orphaned_files import collect_orphaned_files
from smq_operator.cleanup.retention import delete_files
from smq_operator.cleanup.unreferenced_uploads import WrittenUploads, collect_unreferenced_uploads
from smq_operator.file_lists.topic_file_lists import TopicFileLists
from smq_storage.catalog import paths, sealed_index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.parquet_codec import chunk_schema, encode_chunk
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import ObjectInfo, ObjectMissing, ObjectTail, Store, StoredObject, open_store
from support.data.clocks import LONG_AGO, NO_GRACE, NOW, leader_at
from support.data.sealed_topic import (
    CHUNKS,
    ROWS,
    all_written,
    leftover_files,
    make_topic,
    segment_name,
    segments_with_files,
)
from support.fault_injection.crashing_store import CrashingStore, ProcessCrashed

RETRY_POLICY = RetryPolicy(2.0)
LATE = 100_000_000


class CountingStore:
    """Counts the reads by the kind of file. ``listings`` False: every listing is empty."""

    def __init__(self, store: Store, *, listings: bool = True) -> None:
        self._store = store
        self._listings = listings
        self.reads: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, path: str) -> StoredObject:
        self.reads["file_list" if paths.file_list_segment(path) and "/_file_lists/" in path else "document"] += 1
        return self._store.get(path)

    def get_tail(self, path: str, nbytes: int) -> ObjectTail:
        self.reads["chunk"] += 1
        return self._store.get_tail(path, nbytes)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._store.list(prefix) if self._listings else iter(())


def index_of(store: Store, topic: Topic) -> list[SealedSegment]:
    return sealed_index.read(store, topic.name, topic.uid)


def name_all(store: Store, topic: Topic) -> None:
    TopicFileLists(topic).run(store, index_of(store, topic), LATE, RETRY_POLICY)


def remove(store: Store, topic: Topic, number: int) -> None:
    """What retention does with the index."""
    entry = next(it for it in index_of(store, topic) if it.number == number)
    removed = RemovedSegment(name=entry.name, number=entry.number, end=entry.end, removed_at=1)
    sealed_index.remove(store, topic.name, topic.uid, [removed])


def file_lists(store: Store, topic: Topic) -> list[str]:
    folder = paths.file_lists_folder(topic.name, topic.uid)
    return sorted(o.path.rsplit("/", 1)[-1] for o in store.list(folder))


def put_file_list(store: Store, topic: Topic, name: str, data: bytes = b"{") -> None:
    store.put(paths.file_list(topic.name, topic.uid, name), data)


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = make_topic(store, 3)
    name_all(store, topic)
    return topic


def test_files_are_deleted_by_their_file_list_without_a_walk(store: Store, topic: Topic) -> None:
    remove(store, topic, 0)
    counting = CountingStore(store, listings=False)
    _, count = delete_files(cast(Store, counting), topic, leader_at(LATE), NO_GRACE, RETRY_POLICY)
    assert count == CHUNKS + 1
    assert (counting.reads["file_list"], counting.reads["chunk"]) == (1, 0)
    assert not leftover_files(store, topic)
    assert file_lists(store, topic) == [f"{segment_name(n)}.00000000.json" for n in (1, 2)]


def test_the_chain_is_walked_if_the_file_list_cannot_be_read(store: Store, topic: Topic) -> None:
    remove(store, topic, 0)
    put_file_list(store, topic, paths.file_list_name(segment_name(0), 0))
    delete_files(cast(Store, CountingStore(store, listings=False)), topic, leader_at(LATE), NO_GRACE, RETRY_POLICY)
    assert not leftover_files(store, topic)


@pytest.mark.parametrize("answer_lost", [False, True])
def test_a_deletion_that_was_interrupted_is_finished_without_listings(answer_lost: bool) -> None:
    left, finished = 0, False
    while not finished:
        store = open_store("memory://")
        topic = make_topic(store, 2)
        name_all(store, topic)
        remove(store, topic, 0)
        dying = CrashingStore(store, left, answer_lost=answer_lost)
        try:
            delete_files(cast(Store, dying), topic, leader_at(LATE), NO_GRACE, RETRY_POLICY)
            finished = True
        except ProcessCrashed:
            left += 1
        delete_files(cast(Store, CountingStore(store, listings=False)), topic, leader_at(LATE), NO_GRACE, RETRY_POLICY)
        assert not leftover_files(store, topic), f"after {left} effects"
        assert file_lists(store, topic) == [paths.file_list_name(segment_name(1), 0)]
        assert segments_with_files(store, topic) == {segment_name(1): CHUNKS + 1}
    assert left == CHUNKS + 3, "the files, the file list, the index"


def test_a_file_list_that_lands_after_its_segment_was_deleted_is_orphaned(store: Store, topic: Topic) -> None:
    remove(store, topic, 0)
    delete_files(store, topic, leader_at(LATE), NO_GRACE, RETRY_POLICY)
    late = paths.file_list_name(segment_name(0), 0)
    put_file_list(store, topic, late)
    assert collect_orphaned_files(store, topic, LONG_AGO).file_lists == 0, "it is young"
    assert late in file_lists(store, topic)
    assert collect_orphaned_files(store, topic, NOW).file_lists == 1
    assert late not in file_lists(store, topic)


def test_the_file_list_of_a_segment_whose_files_are_still_to_be_deleted_stays(store: Store, topic: Topic) -> None:
    remove(store, topic, 0)
    assert collect_orphaned_files(store, topic, NOW).file_lists == 0


def test_what_the_index_names_or_may_still_name_stays(store: Store, topic: Topic) -> None:
    """The next version of segment 1, and version 0 of the segment that is not in the index yet."""
    put_file_list(store, topic, paths.file_list_name(segment_name(1), 1, "abc"))
    put_file_list(store, topic, paths.file_list_name(segment_name(3), 0))
    before = file_lists(store, topic)
    assert collect_orphaned_files(store, topic, NOW).file_lists == 0
    assert file_lists(store, topic) == before


def test_a_version_that_was_never_named_stays_while_none_is_named(store: Store) -> None:
    topic = make_topic(store, 1)
    put_file_list(store, topic, paths.file_list_name(segment_name(0), 0))
    put_file_list(store, topic, paths.file_list_name(segment_name(0), 1, "abc"))
    assert collect_orphaned_files(store, topic, NOW).file_lists == 0


def test_versions_that_nobody_can_name_any_more_are_orphaned(store: Store, topic: Topic) -> None:
    put_file_list(store, topic, paths.file_list_name(segment_name(1), 0))
    name_all(store, topic)
    named = index_of(store, topic)[1].file_list
    assert paths.file_list_version(named) == 1
    put_file_list(store, topic, paths.file_list_name(segment_name(1), 1, "other"))
    assert collect_orphaned_files(store, topic, NOW).file_lists == 2
    assert [name for name in file_lists(store, topic) if name.startswith(segment_name(1))] == [named]


def test_uploads_are_looked_up_in_file_lists(store: Store, topic: Topic) -> None:
    store.put(paths.uploaded_file(topic.uid, "old.parquet"), b"PAR1")
    counting = CountingStore(store)
    assert collect_unreferenced_uploads(cast(Store, counting), topic, NOW, all_written(store, topic)) == 1
    assert counting.reads["file_list"] == 3
    assert counting.reads["chunk"] == 1, "the open segment has no chunk yet"


def refer(store: Store, topic: Topic, segment: str, first: int) -> None:
    """Puts a reference to the upload ``up`` in the place of a chunk."""
    reference = Reference(
        upload="up.parquet",
        etag="etag",
        first_row=0,
        rows=ROWS,
        bytes=100,
        partition_min=0,
        partition_max=1,
        timestamp_min=0,
        timestamp_max=0,
    )
    info = ChunkInfo(
        segment=segment, first=first, rows=ROWS, writer="w", nonce=f"r{first}", reference=reference, appended=1
    )
    store.put(paths.chunk(topic.name, topic.uid, segment, first), encode_chunk([], info, chunk_schema()))


def test_the_reference_chunks_of_a_file_list_are_deleted_and_its_uploads_are_kept(store: Store) -> None:
    topic = make_topic(store, 2)
    refer(store, topic, segment_name(0), ROWS)
    name_all(store, topic)
    store.put(paths.uploaded_file(topic.uid, "up.parquet"), b"PAR1")
    counting = CountingStore(store)
    assert collect_unreferenced_uploads(cast(Store, counting), topic, NOW, all_written(store, topic)) == 0
    assert counting.reads["chunk"] == 1, "the open segment has no chunk yet"
    remove(store, topic, 0)
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 0, (
        "a reader may still be reading it"
    )
    delete_files(cast(Store, CountingStore(store, listings=False)), topic, leader_at(LATE), NO_GRACE, RETRY_POLICY)
    assert not leftover_files(store, topic)
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 1


@pytest.mark.parametrize("with_file_list", [False, True])
def test_large_values_stay_as_long_as_their_segment_and_go_with_it(store: Store, with_file_list: bool) -> None:
    topic = make_topic(store, 2)
    large = paths.large_value(topic.uid, "p-0-a.value")
    for path in (large, paths.large_value(topic.uid, "p-0-unsent.value")):
        store.put(path, b"large")
    write_with_large_value(store, topic, segment_name(0), ROWS, "p-0-a.value")
    if with_file_list:
        name_all(store, topic)
    counting = CountingStore(store)
    assert collect_unreferenced_uploads(cast(Store, counting), topic, NOW, all_written(store, topic)) == 1, (
        "no message names the other one"
    )
    assert (counting.reads["file_list"] == 2) == with_file_list
    remove(store, topic, 0)
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 0, (
        "a reader may still be reading it"
    )
    assert store.head(large)
    delete_files(store, topic, leader_at(LATE), NO_GRACE, RETRY_POLICY)
    with pytest.raises(ObjectMissing):
        store.head(large)
    assert not leftover_files(store, topic)


@pytest.mark.parametrize("missing", range(0, CHUNKS * ROWS + 1, ROWS))
def test_a_chain_with_a_gap_deletes_nothing(store: Store, missing: int) -> None:
    topic = make_topic(store, 2)
    large = paths.large_value(topic.uid, "p-0-a.value")
    store.put(large, b"large")
    write_with_large_value(store, topic, segment_name(0), (CHUNKS - 1) * ROWS, "p-0-a.value")
    gap = paths.chunk(topic.name, topic.uid, segment_name(0), missing)
    store.delete(gap)
    with pytest.raises(CorruptChunk, match=gap):
        collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic))
    assert store.head(large)


def test_no_large_value_goes_that_an_unwritten_message_may_name(store: Store, topic: Topic) -> None:
    """An acked message may wait for its chunk longer than the grace: a replica or a journal has its name alone."""
    store.put(paths.large_value(topic.uid, "p-0-a.value"), b"large")
    assert collect_unreferenced_uploads(store, topic, NOW, {}) == 0, "the primary does not report"
    other = {("another", segment_name(3)): WrittenUploads(0, NOW)}
    assert collect_unreferenced_uploads(store, topic, NOW, other) == 0, "a follower reports"
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic, before=LONG_AGO)) == 0
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 1


def test_no_upload_goes_if_an_open_chain_is_read_shorter_than_its_primary_reports(store: Store, topic: Topic) -> None:
    store.put(paths.large_value(topic.uid, "p-0-a.value"), b"large")
    written = {name: replace(it, chain_end=ROWS) for name, it in all_written(store, topic).items()}
    with pytest.raises(CorruptChunk, match="goes on"):
        collect_unreferenced_uploads(store, topic, NOW, written)


@pytest.mark.parametrize("with_file_list", [False, True])
@pytest.mark.parametrize("left", range(5))
def test_a_crash_while_files_are_deleted_leaves_no_large_value(store: Store, left: int, with_file_list: bool) -> None:
    topic = make_topic(store, 2)
    store.put(paths.large_value(topic.uid, "p-0-a.value"), b"large")
    write_with_large_value(store, topic, segment_name(0), ROWS, "p-0-a.value")
    if with_file_list:
        name_all(store, topic)
    remove(store, topic, 0)
    with pytest.raises(ProcessCrashed):
        delete_files(
            cast(Store, CrashingStore(store, left, answer_lost=False)), topic, leader_at(LATE), NO_GRACE, RETRY_POLICY
        )
    delete_files(store, topic, leader_at(LATE), NO_GRACE, RETRY_POLICY)
    assert not list(store.list(paths.large_values_folder(topic.uid)))
    assert not leftover_files(store, topic)


def test_the_large_values_of_a_deleted_topic_are_deleted_with_its_data(store: Store) -> None:
    topic = make_topic(store, 1)
    store.put(paths.large_value(topic.uid, "p-0-a.value"), b"large")
    store.put(paths.large_value("another", "p-0-a.value"), b"large")
    delete_topic(store, topic.name, topic.uid)
    assert [o.path for o in store.list(paths.LARGE_VALUES)] == [paths.large_value("another", "p-0-a.value")]


def write_with_large_value(store: Store, topic: Topic, segment: str, first: int, name: str) -> None:
    """Puts a chunk that names a large value in the place of another one."""
    found = ChunkChain(store, topic.name, topic.uid, segment).read(first)
    assert found is not None
    info, table = replace(found[0], large_values=(name,)), found[1]
    rows = table.drop_columns("appended").combine_chunks().to_batches()[0]
    data = encode_chunk([(rows, 1)], info, chunk_schema())
    store.put(paths.chunk(topic.name, topic.uid, segment, first), data)
