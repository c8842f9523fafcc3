"""A leader merges the small files of sealed segments in the background, and disturbs nobody with it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from smq_core.errors import StoreUnavailable
from smq_core.file_lists.file_list import FileList
from smq_core.model.entities import SECOND, RemovedSegment
from smq_core.model.superseded_chunks import SupersededChunks
from smq_operator.cleanup.orphaned_files import collect_orphaned_files
from smq_operator.cleanup.retention import delete_files
from smq_operator.compaction import small_file_merger
from smq_operator.compaction.small_file_merger import MAX_RETRY_AFTER_US
from smq_operator.runtime.merge_settings import MergeSettings
from smq_storage.catalog import paths, sealed_index
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import StoredObject
from smq_storage.tables.file_lists import read_file_list
from smq_storage.tables.range_reader import read_range
from support.data.clocks import LONG_AGO, NO_GRACE, NOW, leader_at
from support.data.pins import LIFETIME, Readers
from support.data.small_chunks import NAME, ROWS, UID, index_of, make_topic, numbers, segment_name, stored
from support.in_memory.merging_leader import MergingLeader
from support.in_memory.quiet_broker import CountingStore
from support.virtual_time import virtual_time
from support.waiting import HANG_GUARD

RETRY_POLICY = RetryPolicy(2.0)
CHUNKS = 20
END = CHUNKS * ROWS


class DamagedStore(CountingStore):
    """One of its objects has other bytes than were written."""

    def __init__(self, damaged: str) -> None:
        super().__init__()
        self.damaged = damaged

    def get(self, path: str) -> StoredObject:
        self.calls["get"] += 1
        found = self.store.get(path)
        return found._replace(data=memoryview(b"damaged")) if path == self.damaged else found


def file_list_of(store: CountingStore, number: int = 0) -> FileList:
    found = read_file_list(store.store, NAME, UID, stored(store.store, number).file_list)
    assert found is not None
    return found


async def idle_requests(leader: MergingLeader, store: CountingStore) -> Counter[str]:
    """What 100 minutes of passes request, in which nothing happens."""
    store.calls.clear()
    for _ in range(100):
        leader.time += 60 * SECOND
        await leader.merger.run_pass()
    return store.calls


def is_merged(store: CountingStore, number: int = 0) -> bool:
    return len(file_list_of(store, number).files) < CHUNKS


def merged_objects(store: CountingStore, number: int = 0) -> list[str]:
    return [o.path for o in store.store.list(paths.compacted_folder(NAME, UID, segment_name(number)))]


def chunk(first: int, number: int = 0) -> str:
    return paths.chunk(NAME, UID, segment_name(number), first)


def remove(store: CountingStore, number: int = 0) -> None:
    """What retention does with the index."""
    sealed_index.remove(
        store.store, NAME, UID, [RemovedSegment(name=segment_name(number), number=number, end=END, removed_at=1)]
    )


def when(store: CountingStore, method: str, then: Callable[[], None], after: int = 0) -> None:
    """Calls ``then`` once, before the next call of that method of the store, or after some more of them."""
    left = [after]

    def before(name: str) -> None:
        if name == method:
            left[0] -= 1
            if left[0] == -1:
                then()

    store.before = before


@virtual_time
async def test_small_files_become_one_with_the_same_messages() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS))
    await leader.merge()
    (file,) = file_list_of(store).files
    assert paths.is_compacted(file.path)
    assert numbers(store.store, stored(store.store)) == list(range(END))
    assert leader.managed.index.sealed[segment_name()] == index_of(store.store)[0], (
        "clients get the name of the file list"
    )
    assert (leader.merger.replaced_files, leader.merger.merged_files, leader.merger.failures) == (CHUNKS, 1, 0)
    assert leader.merger.waiting(leader.managed) == 0
    assert not leader.problems


@virtual_time
async def test_a_merge_costs_a_request_for_each_file_and_ten_more() -> None:
    """With two that the collection of orphaned files needs for the former file list."""
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS))
    leader.read_file_lists()
    store.calls.clear()
    await leader.merger.run_pass()
    leader.read_file_lists()
    assert store.calls["get"] == CHUNKS + 5
    assert store.calls["put_new"] + store.calls["put_if"] == 3
    assert sum(store.calls.values()) == CHUNKS + 8


@virtual_time
async def test_a_topic_without_small_files_costs_no_request() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=15))
    leader.read_file_lists()
    assert not await idle_requests(leader, store)


@virtual_time
async def test_what_was_merged_costs_no_request_any_more_and_stays() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS))
    await leader.merge()
    leader.read_file_lists()
    assert not await idle_requests(leader, store)
    again = MergingLeader(store, leader.topic)
    await again.merge()
    assert again.merger.merged_files == 0, "the next leader finds nothing either"


@virtual_time
async def test_merged_files_that_are_small_are_not_merged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that compress well, of which few fit into one file because of their decoded size."""
    monkeypatch.setattr(small_file_merger, "LIMITS", small_file_merger.MergeLimits(1, 1))
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS))
    await leader.merge()
    assert leader.merger.merged_files == len(file_list_of(store).files) == CHUNKS
    await leader.merge()
    assert leader.merger.merged_files == CHUNKS


@virtual_time
async def test_a_segment_is_merged_some_time_after_its_seal() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS), MergeSettings(after_us=300 * SECOND))
    sealed_at = index_of(store.store)[0].sealed_at
    leader.time = sealed_at + 299 * SECOND
    await leader.merge()
    assert leader.merger.waiting(leader.managed) == 1
    assert not is_merged(store)
    leader.time += SECOND
    await leader.merge()
    assert is_merged(store)


@virtual_time
async def test_a_seal_in_the_future_of_the_clock_is_waited_for_no_longer() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS), MergeSettings(after_us=300 * SECOND))
    assert index_of(store.store)[0].sealed_at == SECOND
    leader.time = 0
    await leader.merge()
    leader.time = 300 * SECOND
    await leader.merge()
    assert is_merged(store)


@virtual_time
async def test_nothing_is_merged_if_it_is_switched_off() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS), MergeSettings(0, 0))
    leader.read_file_lists()
    store.calls.clear()
    await leader.merge()
    assert not store.calls
    assert not is_merged(store)


@virtual_time
async def test_only_files_below_the_size_are_merged() -> None:
    store = CountingStore()
    topic = make_topic(store.store, chunks=CHUNKS)
    smallest = min(file.bytes for file in file_list_of(store).files)
    await MergingLeader(store, topic, MergeSettings(smallest, 0)).merge()
    assert not is_merged(store)
    largest = max(file.bytes for file in file_list_of(store).files)
    await MergingLeader(store, topic, MergeSettings(largest + 1, 0)).merge()
    assert is_merged(store)


# ---- others change the segment


@virtual_time
async def test_a_segment_that_retention_has_removed_is_left_alone() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS))
    leader.read_file_lists()
    remove(store)
    store.calls.clear()
    for _ in range(10):
        leader.time += 60 * SECOND
        await leader.merger.run_pass()
    assert store.calls == {"get": 1}, "the index"
    assert not merged_objects(store)
    assert not leader.problems
    assert not leader.merger.failures


@pytest.mark.parametrize("method", ["get", "put_new", "put_if"])
@virtual_time
async def test_retention_wins_while_its_segment_is_merged(method: str) -> None:
    """Before a file is read, before the merged file is written, and before the index is swapped."""
    store = CountingStore()
    topic = make_topic(store.store, chunks=CHUNKS)
    leader = MergingLeader(store, topic)
    leader.read_file_lists()
    when(store, method, lambda: remove(store), after=5 if method == "get" else 0)
    await leader.merger.run_pass()
    assert index_of(store.store) == []
    assert not leader.problems
    assert leader.merger.merged_files == 0
    assert merged_objects(store)
    delete_files(store.store, topic, leader_at(NOW.timestamp() * SECOND), NO_GRACE, RETRY_POLICY)
    collect_orphaned_files(store.store, topic, NOW)
    left = [o.path for o in store.store.list(paths.topic_folder(NAME, UID)) if segment_name() in o.path]
    assert left == []


@virtual_time
async def test_files_that_retention_deletes_meanwhile_are_no_problem() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS))
    leader.read_file_lists()

    def delete() -> None:
        remove(store)
        for first in range(0, END, ROWS):
            store.store.delete(chunk(first))

    when(store, "get", delete, after=5)
    await leader.merger.run_pass()
    assert not leader.problems
    assert not leader.merger.failures


@virtual_time
async def test_of_two_leaders_at_once_one_wins_and_the_others_files_go_with_the_segment() -> None:
    store = CountingStore()
    topic = make_topic(store.store, chunks=CHUNKS)
    first, second = MergingLeader(store, topic), MergingLeader(store, topic)
    first.read_file_lists()
    second.read_file_lists()
    await asyncio.gather(first.merger.run_pass(), second.merger.run_pass())
    assert len(merged_objects(store)) == 2
    assert first.merger.merged_files + second.merger.merged_files == 1, "one of them has won"
    named = index_of(store.store)[0]
    assert first.managed.index.sealed[segment_name()] == second.managed.index.sealed[segment_name()] == named
    assert numbers(store.store, stored(store.store)) == list(range(END))
    assert not first.problems
    assert not second.problems
    for leader in (first, second):
        await leader.merge()
    assert len(merged_objects(store)) == 2, "nobody merges again"
    remove(store)
    delete_files(store.store, topic, leader_at(NOW.timestamp() * SECOND), NO_GRACE, RETRY_POLICY)
    assert not merged_objects(store)


# ---- readers


@virtual_time
async def test_a_reader_in_the_middle_gets_every_message_once() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS))
    before = stored(store.store)
    reading = read_range(store.store, before, 0, END, ["number"])
    read = [n for _ in range(CHUNKS // 2) for n in next(reading)[1]["number"].to_pylist()]
    await leader.merge()
    assert is_merged(store)
    assert read + [n for _, table in reading for n in table["number"].to_pylist()] == list(range(END))
    assert numbers(store.store, before, END // 2) == list(range(END // 2, END)), "also by the former file list"


@virtual_time
async def test_the_former_file_list_stays_as_long_as_there_is_a_pin() -> None:
    store = CountingStore()
    topic = make_topic(store.store, chunks=CHUNKS)
    leader = MergingLeader(store, topic)
    before = stored(store.store)
    with Readers(store.store).reads.begin(NAME, UID, "job", LIFETIME):
        await leader.merge()
        assert is_merged(store)
        assert collect_orphaned_files(store.store, topic, NOW).file_lists == 0
        assert numbers(store.store, before) == list(range(END))
    assert collect_orphaned_files(store.store, topic, LONG_AGO).file_lists == 0, "it is young"
    assert collect_orphaned_files(store.store, topic, NOW).file_lists == 1
    assert numbers(store.store, stored(store.store)) == list(range(END))


# ---- failures


@virtual_time
async def test_a_damaged_chunk_is_reported_once_and_delays_no_other_segment() -> None:
    store = DamagedStore(chunk(6))
    leader = MergingLeader(store, make_topic(store.store, 2, CHUNKS))
    await leader.merge()
    ((where, message),) = leader.problems.items()
    assert where == f"document {chunk(6)}"
    assert segment_name() in message
    assert leader.tasks.problems.kinds() == {"chunks": 1}
    await leader.merge()
    assert is_merged(store, 1)
    leader.read_file_lists()
    store.calls.clear()
    for _ in range(10):
        leader.time += 60 * SECOND
        await leader.merger.run_pass()
    assert not store.calls, "it is not tried again at once"
    assert leader.merger.failures == 1
    leader.time += MAX_RETRY_AFTER_US
    await leader.merger.run_pass()
    assert leader.merger.failures == 2
    assert list(leader.problems) == [where]
    store.damaged = ""
    leader.time += MAX_RETRY_AFTER_US
    await leader.merger.run_pass()
    await leader.merger.run_pass()
    assert is_merged(store)
    assert not leader.problems


@virtual_time
async def test_a_chunk_that_is_gone_is_reported_while_the_index_has_its_segment() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS))
    store.store.delete(chunk(6))
    await leader.merge()
    ((where, message),) = leader.problems.items()
    assert where == f"document {chunk(6)}"
    assert "is gone" in message
    remove(store)
    leader.managed.index.merge(sealed_index.load(store.store, NAME, UID))
    await leader.merge()
    assert not leader.problems, "retention has removed the segment"


@virtual_time
async def test_a_store_that_does_not_answer_is_tried_again_with_a_backoff() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS))
    leader.read_file_lists()

    def fail(name: str) -> None:
        raise StoreUnavailable("no answer")

    store.before = fail
    for _ in range(100):
        leader.time += SECOND
        await leader.merger.run_pass()
    assert leader.merger.failures == 4, "after 10, 20 and 40 seconds"
    assert not leader.problems
    store.before = lambda name: None
    leader.time += 100 * SECOND
    await leader.merger.run_pass()
    assert is_merged(store)


# ---- the leader stops


def test_a_leader_that_stops_ends_a_merge_before_its_next_request() -> None:
    store = CountingStore()
    topic = make_topic(store.store, chunks=CHUNKS)

    async def run(pool: ThreadPoolExecutor) -> None:
        leader = MergingLeader(store, topic, pool=pool)
        leader.read_file_lists()
        store.calls.clear()
        loop, ended = asyncio.get_running_loop(), threading.Event()
        merging = asyncio.create_task(leader.merger.run_pass())
        merging.add_done_callback(lambda _: ended.set())

        def cancel() -> None:
            loop.call_soon_threadsafe(merging.cancel)
            assert ended.wait(HANG_GUARD)

        when(store, "get", cancel, after=5)
        with pytest.raises(asyncio.CancelledError):
            await merging

    with ThreadPoolExecutor() as pool:
        asyncio.run(run(pool))
    assert store.calls == {"get": 6}
    assert not merged_objects(store)


@virtual_time
async def test_a_topic_that_is_deleted_meanwhile_is_not_merged_further() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS))
    leader.read_file_lists()
    when(store, "get", lambda: setattr(leader.managed, "deleted", True))
    await leader.merger.run_pass()
    assert not merged_objects(store)
    assert not leader.problems


@virtual_time
async def test_a_merge_goes_on_while_superseded_chunks_of_its_segment_are_recorded() -> None:
    store = CountingStore()
    leader = MergingLeader(store, make_topic(store.store, chunks=CHUNKS))
    leader.read_file_lists()
    (entry,) = leader.managed.index.sealed.values()
    record = SupersededChunks(entry.file_list, 1, 1)
    when(store, "get", lambda: leader.managed.index.record_superseded([replace(entry, superseded=record)]))
    await leader.merger.run_pass()
    assert len(merged_objects(store)) == 1
