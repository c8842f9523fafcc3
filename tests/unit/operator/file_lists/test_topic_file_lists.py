"""How the leader finds, builds and names file lists, over a store in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from smq_core.errors import StoreUnavailable
from smq_core.file_lists.file_list import FileList
from smq_core.model.entities import RemovedSegment, SealedSegment, Topic
from smq_operator.file_lists import topic_file_lists
from smq_operator.file_lists.topic_file_lists import BUILD_AFTER_US, RETRY_AFTER_US, PassResult, TopicFileLists
from smq_storage.catalog import paths, sealed_index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, StoredObject, open_store
from smq_storage.tables.file_lists import read_file_list, write_file_list
from support.data.sealed_topic import CHUNKS, END, make_topic, segment_name
from support.data.stored_segment import file_list_of_chain
from support.fault_injection.crashing_store import CrashingStore, ProcessCrashed

RETRY_POLICY = RetryPolicy(2.0)
# Long after all seals: nobody waits for a broker's file list any more.
LATE = 100_000_000


class Leader:
    """One leader's passes over the topic, each at a time of its clock."""

    def __init__(self, store: Any, topic: Topic, has_small_files: Callable[[FileList], bool] = lambda _: False) -> None:
        self.store: Store = store
        self.topic = topic
        self.file_lists = TopicFileLists(topic, has_small_files=has_small_files)

    def run(self, now: int = LATE, entries: list[SealedSegment] | None = None) -> PassResult:
        known = index_of(self.store, self.topic) if entries is None else entries
        return self.file_lists.run(self.store, known, now, RETRY_POLICY)


def index_of(store: Store, topic: Topic) -> list[SealedSegment]:
    return sealed_index.read(store, topic.name, topic.uid)


def named(store: Store, topic: Topic) -> list[str]:
    return [entry.file_list for entry in index_of(store, topic)]


def version_0(number: int) -> str:
    return paths.file_list_name(segment_name(number), 0)


def path_of(topic: Topic, name: str) -> str:
    return paths.file_list(topic.name, topic.uid, name)


def write_as_broker(store: Store, topic: Topic, number: int) -> str:
    file_list = file_list_of_chain(ChunkChain(store, topic.name, topic.uid, segment_name(number)), None)
    assert file_list is not None
    return write_file_list(store, topic.name, topic.uid, file_list)


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
def topic(store: Store) -> Topic:
    return make_topic(store, 3)


def test_a_file_list_of_the_broker_is_named(store: Store, topic: Topic) -> None:
    write_as_broker(store, topic, 1)
    result = Leader(store, topic).run(now=0)
    assert result.named == {segment_name(1): version_0(1)}
    assert result.built == []
    assert named(store, topic) == ["", version_0(1), ""]


def test_a_missing_file_list_is_built_after_a_while(store: Store, topic: Topic) -> None:
    leader = Leader(store, topic)
    first_seal = index_of(store, topic)[0].sealed_at
    leader.run(now=first_seal + BUILD_AFTER_US - 1)
    assert named(store, topic) == ["", "", ""]
    leader.run(now=first_seal + BUILD_AFTER_US - 1 + RETRY_AFTER_US)
    assert named(store, topic) == [version_0(0), version_0(1), ""], "the last one was sealed later"
    leader.run(now=LATE)
    assert named(store, topic) == [version_0(n) for n in range(3)]
    file_list = read_file_list(store, topic.name, topic.uid, version_0(2))
    assert file_list == file_list_of_chain(ChunkChain(store, topic.name, topic.uid, segment_name(2)), None)
    assert file_list is not None
    assert (file_list.end, len(file_list.files)) == (END, CHUNKS)


def test_a_seal_in_the_future_of_the_clock_is_waited_for_no_longer(store: Store, topic: Topic) -> None:
    leader = Leader(store, topic)
    entries = [entry for entry in index_of(store, topic) if entry.sealed_at > 1_000_000]
    leader.run(now=0, entries=entries)
    leader.run(now=BUILD_AFTER_US, entries=entries)
    assert named(store, topic) == ["", version_0(1), version_0(2)]


def test_nothing_is_built_while_the_chain_has_no_end(store: Store, topic: Topic) -> None:
    chain = ChunkChain(store, topic.name, topic.uid, segment_name(1))
    seal = chain.path(END)
    data = bytes(store.get(seal).data)
    store.delete(seal)
    leader = Leader(store, topic)
    leader.run()
    assert named(store, topic) == [version_0(0), "", version_0(2)]
    assert not leader.file_lists.problems
    leader.run(LATE + topic_file_lists.REPORT_GAP_AFTER_US)
    ((path, reason),) = leader.file_lists.problems.values()
    assert path == seal
    assert "is missing" in reason
    store.put(seal, data)
    leader.run(LATE + topic_file_lists.REPORT_GAP_AFTER_US + RETRY_AFTER_US)
    assert named(store, topic) == [version_0(n) for n in range(3)]
    assert not leader.file_lists.problems


def test_a_long_chain_is_walked_in_several_passes(store: Store, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_file_lists, "MAX_CHUNKS_PER_PASS", CHUNKS - 1)
    leader = Leader(store, topic)
    passes = 1
    while leader.run().more:
        passes += 1
    assert passes > 3
    assert named(store, topic) == [version_0(n) for n in range(3)]
    assert leader.file_lists.complete or not leader.run().named


def test_a_pass_takes_a_limited_number_of_segments(store: Store, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_file_lists, "MAX_SEGMENTS_PER_PASS", 2)
    leader = Leader(store, topic)
    assert leader.run().more
    assert named(store, topic) == [version_0(0), version_0(1), ""]
    leader.run()
    assert named(store, topic) == [version_0(n) for n in range(3)]


@pytest.mark.parametrize("content", [b"{", b"", b'{"segment": "x", "end": 1}'])
def test_a_version_0_that_cannot_be_read_is_replaced_by_the_next(store: Store, topic: Topic, content: bytes) -> None:
    broken = path_of(topic, version_0(1))
    store.put(broken, content)
    leader = Leader(store, topic)
    result = leader.run()
    name = named(store, topic)[1]
    assert paths.file_list_version(name) == 1
    assert result.built == [segment_name(n) for n in range(3)]
    found = read_file_list(store, topic.name, topic.uid, name)
    assert found is not None
    assert found.files
    assert bytes(store.get(broken).data) == content, "it is left in place"
    assert not leader.file_lists.problems


def test_a_file_list_of_another_end_is_not_named(store: Store, topic: Topic) -> None:
    other = file_list_of_chain(ChunkChain(store, topic.name, topic.uid, segment_name(1)), None)
    assert other is not None
    shorter = replace(other, end=other.files[0].end, files=other.files[:1])
    write_file_list(store, topic.name, topic.uid, shorter)
    Leader(store, topic).run()
    assert paths.file_list_version(named(store, topic)[1]) == 1


def test_a_named_file_list_that_is_damaged_later_is_replaced(store: Store, topic: Topic) -> None:
    Leader(store, topic).run()
    store.put(path_of(topic, version_0(1)), b"{")
    store.delete(path_of(topic, version_0(2)))
    Leader(store, topic).run()
    assert [paths.file_list_version(name) for name in named(store, topic)] == [0, 1, 0]
    assert all(read_file_list(store, topic.name, topic.uid, name) for name in named(store, topic))


def test_a_damaged_file_list_is_noticed_by_a_leader_that_has_read_it(store: Store, topic: Topic) -> None:
    leader = Leader(store, topic)
    leader.run()
    store.put(path_of(topic, version_0(1)), b"{")
    leader.run()
    assert named(store, topic)[1] == version_0(1), "it is not read again at once"
    leader.run(LATE + topic_file_lists.CHECK_AGAIN_AFTER_US)
    assert paths.file_list_version(named(store, topic)[1]) == 1


@pytest.mark.parametrize("damage", [lambda store, path: store.put(path, b"{"), lambda store, path: store.delete(path)])
def test_a_later_version_is_only_reported(store: Store, topic: Topic, damage: Callable[[Store, str], None]) -> None:
    store.put(path_of(topic, version_0(1)), b"{")
    Leader(store, topic).run()
    name = named(store, topic)[1]
    damage(store, path_of(topic, name))
    leader = Leader(store, topic)
    leader.run()
    assert named(store, topic)[1] == name
    assert [path for path, _ in leader.file_lists.problems.values()] == [path_of(topic, name)]


def test_a_segment_that_retention_removes_meanwhile_is_not_named(store: Store, topic: Topic) -> None:
    known = index_of(store, topic)
    gone = known[0]
    removed = RemovedSegment(name=gone.name, number=gone.number, end=gone.end, removed_at=0)
    sealed_index.remove(store, topic.name, topic.uid, [removed])
    leader = Leader(store, topic)
    result = leader.run(entries=known)
    assert gone.name not in result.named
    assert named(store, topic) == [version_0(1), version_0(2)]
    leader.run()
    assert leader.file_lists.complete, "nothing is left to do"


def test_a_leader_whose_knowledge_is_old_learns_what_is_named(store: Store, topic: Topic) -> None:
    known = index_of(store, topic)
    store.put(path_of(topic, version_0(1)), b"{")
    Leader(store, topic).run(entries=known)
    result = Leader(store, topic).run(entries=known)
    assert list(result.named.values()) == named(store, topic)


@pytest.mark.parametrize("answer_lost", [False, True])
def test_a_leader_that_dies_at_any_write_is_continued_by_the_next(answer_lost: bool) -> None:
    left, finished = 0, False
    while not finished:
        store = open_store("memory://")
        topic = make_topic(store, 2)
        store.put(path_of(topic, version_0(1)), b"{")
        try:
            Leader(cast(Store, CrashingStore(store, left, answer_lost=answer_lost)), topic).run()
            finished = True
        except ProcessCrashed:
            left += 1
        for name in filter(None, named(store, topic)):
            assert read_file_list(store, topic.name, topic.uid, name), f"named after {left} writes"
        Leader(store, topic).run()
        assert [paths.file_list_version(name) for name in named(store, topic)] == [0, 1]
        assert all(read_file_list(store, topic.name, topic.uid, name) for name in named(store, topic))
    assert left == 3, "two file lists and the index"


class StoreWithoutOne:
    """Does not return one object, though it answers for the others."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._path = store, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, path: str) -> StoredObject:
        if path == self._path:
            raise StoreUnavailable(f"no answer for {path}")
        return self._store.get(path)


def test_one_object_that_the_store_does_not_return_delays_no_other_segment(store: Store, topic: Topic) -> None:
    leader = Leader(StoreWithoutOne(store, path_of(topic, version_0(0))), topic)
    assert leader.run().failure is not None
    leader.run()
    assert named(store, topic) == ["", version_0(1), version_0(2)]


def test_file_lists_with_small_files_are_noted_when_they_are_read_anyway(store: Store, topic: Topic) -> None:
    """Also one that the leader builds itself. What the index does not have any more is forgotten."""
    write_as_broker(store, topic, 0)
    judged: list[str] = []

    def has_small_files(file_list: FileList) -> bool:
        judged.append(file_list.segment)
        return file_list.segment != segment_name(1)

    leader = Leader(store, topic, has_small_files)
    leader.run()
    assert leader.file_lists.small_files == {segment_name(0): version_0(0), segment_name(2): version_0(2)}
    leader.run()
    leader.run(LATE + 10 * RETRY_AFTER_US)
    assert sorted(judged) == [segment_name(n) for n in range(3)], "once for each file list"
    sealed_index.remove(
        store, topic.name, topic.uid, [RemovedSegment(name=segment_name(0), number=0, end=END, removed_at=1)]
    )
    leader.run()
    assert leader.file_lists.small_files == {segment_name(2): version_0(2)}
