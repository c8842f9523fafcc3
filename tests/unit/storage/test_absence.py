"""One answer that an object does not exist is no proof: a second read and a listing come before a loss is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from smq_core.errors import DataLost, StoreUnavailable
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Topic
from smq_storage.catalog import layouts, paths, sealed_index
from smq_storage.catalog.topics import read_current
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.object_store import absence
from smq_storage.object_store.store import ObjectInfo, ObjectMissing, ObjectTail, Store, StoredObject, open_store
from smq_storage.tables.file_lists import write_file_list
from smq_storage.tables.range_reader import read_file
from smq_storage.tables.segment_files import StoredSegment, files_between
from smq_storage.uploads.large_values import LargeValue, read_large_value
from smq_storage.verification.topic_files import TopicFiles
from support.data import uploads
from support.data.raw_flight import rows
from support.data.sealed_topic import END, RANGE, make_topic, segment_name
from support.data.stored_segment import file_list_of_chain


class CountingStore:
    """``looks`` has the second reads and the listings, in order."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.looks: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def head(self, path: str) -> ObjectInfo:
        self.looks.append("head")
        return self._store.head(path)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        self.looks.append(f"list {prefix}")
        return self._store.list(prefix, start_after=start_after)


class ForgetfulStore:
    """Answers the first ``times`` reads of one object with 404."""

    def __init__(self, store: Store, path: str, times: int = 1) -> None:
        self._store, self._path, self._left = store, path, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _forget(self, path: str) -> None:
        if path == self._path and self._left:
            self._left -= 1
            raise ObjectMissing(path)

    def get(self, path: str) -> StoredObject:
        self._forget(path)
        return self._store.get(path)

    def get_tail(self, path: str, nbytes: int) -> ObjectTail:
        self._forget(path)
        return self._store.get_tail(path, nbytes)

    def head(self, path: str) -> ObjectInfo:
        self._forget(path)
        return self._store.head(path)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absence, "CONFIRM_AFTER_SECONDS", 0.0)


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
def topic(store: Store) -> Topic:
    return make_topic(store, 2)


def forgetful(store: Store, path: str, times: int = 1) -> Store:
    return cast(Store, ForgetfulStore(store, path, times))


def test_an_object_that_a_second_read_or_a_listing_finds_is_not_missing(store: Store) -> None:
    store.put("a/b", b"x")
    for times in (0, 1):
        with pytest.raises(StoreUnavailable, match="although it does"):
            absence.confirm_missing(forgetful(store, "a/b", times), "a/b")
    for other in ("a/a", "a/c", "a/b/c"):
        absence.confirm_missing(store, other)


def lossy_reads(store: Store, topic: Topic) -> dict[str, tuple[str, Callable[[Store], object]]]:
    """Reads that report a loss if an object is missing: the object, and the read."""
    name = segment_name(0)
    file_list = file_list_of_chain(ChunkChain(store, topic.name, topic.uid, name))
    assert file_list is not None
    file, large = file_list.files[1], LargeValue.of("p-0-a.value", b"large")
    store.put(paths.large_value(topic.uid, large.name), b"large")
    segment = StoredSegment(topic=topic.name, uid=topic.uid, name=name, end=END)
    first = paths.chunk(topic.name, topic.uid, name, 0)
    return {
        "file": (file.path, lambda it: list(read_file(it, name, file, file.first, file.end))),
        "chain": (first, lambda it: list(files_between(it, segment, 0, END))),
        "value": (
            paths.large_value(topic.uid, large.name),
            lambda it: read_large_value(it, topic.uid, large, name, 0),
        ),
    }


@pytest.mark.parametrize("kind", ["file", "chain", "value"])
def test_a_loss_is_reported_after_a_second_look_alone(store: Store, topic: Topic, kind: str) -> None:
    path, read = lossy_reads(store, topic)[kind]
    with pytest.raises(StoreUnavailable, match="the read is repeated"):
        read(forgetful(store, path))
    assert read(store)
    store.delete(path)
    with pytest.raises(DataLost):
        read(store)


def test_verify_reports_no_file_that_is_there(store: Store, topic: Topic) -> None:
    assert not list(TopicFiles(store, topic.name).problems())
    seal = paths.chunk(topic.name, topic.uid, segment_name(0), END)
    with pytest.raises(StoreUnavailable, match="although it does"):
        list(TopicFiles(forgetful(store, seal), topic.name).problems())


def write_compacted(store: Store, topic: Topic) -> list[str]:
    """The first segment is compacted, but its files were never written. Returns their paths."""
    at, name = (topic.name, topic.uid), segment_name(0)
    found = file_list_of_chain(ChunkChain(store, *at, name))
    assert found is not None
    merged = [paths.compacted_file(*at, name, file.first, "n") for file in found.files]
    files = tuple(replace(file, path=path) for file, path in zip(found.files, merged, strict=True))
    file_list = write_file_list(store, *at, replace(found, files=files, version=1, nonce="n"))
    assert sealed_index.name_file_list(store, *at, name, "", file_list)
    return merged


def write_references(store: Store, topic: Topic) -> list[str]:
    """The open segment refers to uploads that are gone. Returns their paths."""
    chain, messages = ChunkChain(store, topic.name, topic.uid, segment_name(2)), pa.Table.from_batches([rows([b"a"])])
    for first in range(3):
        upload = uploads.write(store, topic.uid, f"u{first}.parquet", messages)
        info = ChunkInfo(
            segment=segment_name(2),
            first=first,
            rows=1,
            writer="w",
            nonce=f"n{first}",
            reference=upload.reference(RANGE),
            appended=5,
        )
        chain.put(info, [], chunk_schema())
        store.delete(paths.uploaded_file(topic.uid, upload.name))
    return [paths.uploaded_file(topic.uid, f"u{first}.parquet") for first in range(3)]


@pytest.mark.parametrize("all_rows", [False, True])
@pytest.mark.parametrize("write", [write_compacted, write_references])
def test_a_verification_pauses_once_for_all_files_that_a_segment_has_lost(
    store: Store,
    topic: Topic,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Store, Topic], list[str]],
    all_rows: bool,
) -> None:
    missing, pauses = write(store, topic), list[float]()
    # Threads of other tests may sleep meanwhile.
    monkeypatch.setattr(absence, "time", SimpleNamespace(sleep=pauses.append))
    counting = CountingStore(store)
    problems = list(TopicFiles(cast(Store, counting), topic.name, rows=all_rows).problems())
    assert [it.path for it in problems] == missing and len(missing) == 3
    assert len(pauses) == 1
    folder = missing[0].rpartition("/")[0]
    assert counting.looks == ["head"] * 3 + [f"list {folder}"]


@pytest.mark.parametrize("write", [write_compacted, write_references])
def test_a_verification_reports_no_file_that_a_listing_has(
    store: Store, topic: Topic, write: Callable[[Store, Topic], list[str]]
) -> None:
    *_, last = write(store, topic)
    store.put(last, b"x")
    with pytest.raises(StoreUnavailable, match=f"{last} does not exist, although it does"):
        list(TopicFiles(forgetful(store, last, times=3), topic.name).problems())


def test_all_of_many_objects_must_be_missing(store: Store) -> None:
    for path in ("a/bb", "a/c"):
        store.put(path, b"x")
    absence.confirm_missing(store, "b/c", "a/d", "a/b")
    for names in (("a/b", "a/c", "a/d"), ("b/c", "a/c"), ("a/c", "a/b")):
        with pytest.raises(StoreUnavailable, match="a/c does not exist, although it does"):
            absence.confirm_missing(forgetful(store, "a/c"), *names)


def test_a_document_that_is_listed_is_not_taken_for_missing(store: Store, topic: Topic) -> None:
    at = topic.name, topic.uid
    reads: dict[str, Callable[[Store], object]] = {
        paths.layout(*at): lambda it: layouts.read_layout(it, *at),
        paths.current(topic.name): lambda it: read_current(it, topic.name),
        paths.index_page(*at, 0): lambda it: sealed_index.load(it, *at).entries,
    }
    for path, read in reads.items():
        assert read(forgetful(store, path)), "the second read finds it"
        with pytest.raises(StoreUnavailable, match="although it does"):
            read(forgetful(store, path, times=2))
