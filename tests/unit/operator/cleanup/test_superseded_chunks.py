"""The leader deletes superseded chunks when nobody can need them, and a topic without any costs no request."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import cast

import pytest

from smq_core.errors import CorruptDocument
from smq_core.model.entities import SECOND, Phase, SealedSegment, Topic
from smq_core.model.superseded_chunks import SupersededChunks
from smq_core.reading.pins import CLOCK_MARGIN
from smq_operator.cleanup import superseded_chunks
from smq_operator.cleanup.filer_clock import ClockReading, FilerClock
from smq_operator.cleanup.orphaned_files import collect_orphaned_files
from smq_operator.cleanup.retention import read_consistent
from smq_operator.cleanup.superseded_chunks import (
    CHECK_AGAIN_INTERVALS,
    RETRY_AFTER_US,
    PassResult,
    SupersededChunksCollector,
    run_pass,
)
from smq_operator.platform_port import DesiredTopic
from smq_operator.reconcile.topics.index_copy import IndexCopy
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import layouts, paths, sealed_index
from smq_storage.catalog.stored_pins import read_pin
from smq_storage.chunks.chain import ChunkChain
from smq_storage.compaction.topic_compaction import compact_topic, merge_here
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, StoredObject, open_store
from smq_storage.tables.file_lists import read_file_list
from support.data.clocks import NOW
from support.data.pins import Readers
from support.data.small_chunks import NAME, ROWS, UID, index_of, make_topic, numbers, segment_name, stored
from support.data.stored_segment import CountingStore
from support.fault_injection.crashing_store import CrashingStore, ProcessCrashed

POLICY = RetryPolicy(2.0)
CHUNKS = 20
HOUR = 3600 * SECOND
YEAR = 365 * 24 * HOUR
SETTINGS = CleanupSettings()
MINUTE = CHECK_AGAIN_INTERVALS * SETTINGS.retention_interval_us
KEPT = CleanupSettings(superseded_files_grace_us=None)


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
def topic(store: Store) -> Topic:
    """One segment, whose chunks were merged."""
    topic = make_topic(store, 1, CHUNKS)
    compact(store)
    return topic


def compact(store: Store, target_bytes: int = 1 << 25) -> None:
    assert all(it.switched for it in compact_topic(store, NAME, UID, "text", merge_here(store), target_bytes))


def chunks(store: Store, number: int = 0) -> int:
    return len(ChunkChain(store, NAME, UID, segment_name(number)).files())


def run(
    store: Store,
    topic: Topic,
    leader: int,
    filer: int,
    hosted: Collection[str] = (),
    settings: CleanupSettings = SETTINGS,
    held: bool = False,
) -> PassResult:
    entries = index_of(store)
    return run_pass(
        store,
        topic,
        entries,
        hosted,
        ClockReading(leader=leader, filer=filer),
        settings,
        POLICY,
        lambda store, topic, retry_policy: held,
    )


def record_of(store: Store, number: int = 0) -> SupersededChunks | None:
    return index_of(store)[number].superseded


def test_chunks_are_deleted_a_while_after_it_was_recorded_that_they_are_superseded(store: Store, topic: Topic) -> None:
    run(store, topic, YEAR, YEAR)
    named = index_of(store)[0].file_list
    assert record_of(store) == SupersededChunks(named, YEAR, YEAR)
    assert chunks(store) == CHUNKS + 1
    run(store, topic, YEAR + HOUR - 1, YEAR + HOUR)
    run(store, topic, YEAR + HOUR, YEAR + HOUR - 1)
    assert chunks(store) == CHUNKS + 1, "one of the clocks says that it was less than an hour"
    result = run(store, topic, YEAR + HOUR, YEAR + HOUR)
    assert result.deleted[segment_name()].complete
    assert chunks(store) == 2
    assert record_of(store) == SupersededChunks(named, YEAR, YEAR, deleted=True)
    assert numbers(store, stored(store)) == list(range(CHUNKS * ROWS))


def test_a_filer_s_time_that_is_late_makes_no_pin_look_younger(store: Store, topic: Topic) -> None:
    """A leader may be paused while it measures. The record then has the latest time that the filer's may have been."""
    run_pass(
        store, topic, index_of(store), (), ClockReading(leader=YEAR, filer=YEAR - HOUR, delay=HOUR), SETTINGS, POLICY
    )
    record = record_of(store)
    assert record is not None and (record.since, record.filer_since) == (YEAR, YEAR)


def test_a_second_compaction_begins_anew(store: Store) -> None:
    topic = make_topic(store, 1, CHUNKS)
    compact(store, target_bytes=33_000)
    run(store, topic, YEAR, YEAR)
    compact(store)
    run(store, topic, YEAR + HOUR, YEAR + HOUR)
    assert record_of(store) == SupersededChunks(index_of(store)[0].file_list, YEAR + HOUR, YEAR + HOUR)
    assert chunks(store) == CHUNKS + 1
    run(store, topic, YEAR + 2 * HOUR, YEAR + 2 * HOUR)
    assert chunks(store) == 2


def test_another_leader_does_not_begin_the_grace_anew(store: Store, topic: Topic) -> None:
    entries = index_of(store)
    run(store, topic, YEAR, YEAR)
    run_pass(store, topic, entries, (), ClockReading(leader=2 * YEAR, filer=2 * YEAR), SETTINGS, POLICY)
    assert record_of(store) == SupersededChunks(entries[0].file_list, YEAR, YEAR)


def test_a_record_of_a_file_list_that_the_index_does_not_name_any_more_is_not_written(
    store: Store, topic: Topic
) -> None:
    entries = [replace(index_of(store)[0], file_list=paths.file_list_name(segment_name(), 1, "other"))]
    run_pass(store, topic, entries, (), ClockReading(leader=YEAR, filer=YEAR), SETTINGS, POLICY)
    assert record_of(store) is None


def test_a_setting_keeps_them(store: Store, topic: Topic) -> None:
    for at in (YEAR, 2 * YEAR, 3 * YEAR):
        run(store, topic, at, at, settings=KEPT)
    assert record_of(store) is None and chunks(store) == CHUNKS + 1


def test_a_segment_without_a_later_file_list_is_left_alone(store: Store) -> None:
    topic = make_topic(store, 1, CHUNKS)
    for at in (YEAR, 2 * YEAR):
        assert run(store, topic, at, at) == PassResult()
    assert chunks(store) == CHUNKS + 1


# ---- what keeps them longer


def test_they_stay_while_a_broker_hosts_the_segment(store: Store, topic: Topic) -> None:
    run(store, topic, YEAR, YEAR)
    run(store, topic, 2 * YEAR, 2 * YEAR, hosted={segment_name()})
    assert chunks(store) == CHUNKS + 1
    run(store, topic, 2 * YEAR, 2 * YEAR, hosted={segment_name(1)})
    assert chunks(store) == 2


def test_they_stay_while_an_atomic_publish_is_unfinished(store: Store, topic: Topic) -> None:
    run(store, topic, YEAR, YEAR)
    run(store, topic, 2 * YEAR, 2 * YEAR, held=True)
    assert chunks(store) == CHUNKS + 1


def test_they_stay_while_the_pin_of_a_reader_lives_that_may_have_planned_with_them(store: Store) -> None:
    topic = make_topic(store, 1, CHUNKS)
    with Readers(store).reads.begin(NAME, UID, "job", 24 * HOUR) as reading:
        planned = reading.files.segments()[0]
        compact(store)
        began = created_at(store)
        run(store, topic, YEAR, began)
        run(store, topic, YEAR + 2 * HOUR, began + 2 * HOUR)
        assert chunks(store) == CHUNKS + 1
        assert numbers(store, planned) == list(range(CHUNKS * ROWS))
    run(store, topic, YEAR + 2 * HOUR, began + 2 * HOUR)
    assert chunks(store) == 2


def test_a_pin_that_is_younger_than_the_record_keeps_nothing(store: Store, topic: Topic) -> None:
    """So readers that follow each other do not keep chunks for ever."""
    Readers(store).reads.begin(NAME, UID, "job", 24 * HOUR)
    began = created_at(store)
    run(store, topic, YEAR, began - CLOCK_MARGIN - 1)
    run(store, topic, YEAR + HOUR, began + HOUR)
    assert chunks(store) == 2


def created_at(store: Store) -> int:
    found = read_pin(store, NAME, UID, "pin-0")
    assert found is not None
    return found.created_at


def test_a_segment_whose_merged_file_is_gone_does_not_keep_the_chunks_of_others(store: Store) -> None:
    topic = make_topic(store, 2, CHUNKS)
    compact(store)
    run(store, topic, YEAR, YEAR)
    file_list = read_file_list(store, NAME, UID, index_of(store)[0].file_list)
    assert file_list is not None
    store.delete(file_list.files[0].path)
    result = run(store, topic, 2 * YEAR, 2 * YEAR)
    assert list(result.damaged) == [segment_name(0)]
    assert (chunks(store, 0), chunks(store, 1)) == (CHUNKS + 1, 2)
    record = record_of(store, 0)
    assert record is not None and not record.deleted


@pytest.mark.parametrize("left", range(0, CHUNKS + 2, 3))
def test_another_leader_goes_on_after_a_crash(store: Store, topic: Topic, left: int) -> None:
    run(store, topic, YEAR, YEAR)
    crashing = cast(Store, CrashingStore(store, left, answer_lost=False))
    with pytest.raises(ProcessCrashed):
        for _ in range(2):
            run(crashing, topic, 2 * YEAR, 2 * YEAR)
            crashing.put("more", b"")
            crashing.put("more", b"")
    run(store, topic, 2 * YEAR, 2 * YEAR)
    assert chunks(store) == 2
    record = record_of(store)
    assert record is not None and record.deleted


# ---- one leader


class Leader:
    """One leader's collector over a store whose requests are counted. Both of its clocks say ``time``."""

    def __init__(self, store: Store, topic: Topic, settings: CleanupSettings = SETTINGS) -> None:
        self.store, self.topic, self.time = CountingStore(store), topic, YEAR
        self.managed = ManagedTopic(
            DesiredTopic(name=topic.name, spec=topic.spec), topic, index=IndexCopy(is_read=True)
        )
        self.managed.index.merge(sealed_index.load(store, NAME, UID))
        self.problems = LeaderProblems()
        self.hosted: set[str] = set()
        pool = StorePool(self.store, None, POLICY)
        self.clock = FilerClock(pool, lambda: self.time)
        self.clock.read = self._read  # type: ignore[method-assign]
        self.collector = SupersededChunksCollector(
            store=pool,
            filer_clock=self.clock,
            clock=lambda: self.time,
            settings=settings,
            problems=self.problems,
            is_held=lambda store, topic, retry_policy: False,
        )

    async def _read(self) -> ClockReading:
        return ClockReading(leader=self.time, filer=self.time)

    async def collect(self, after: int = 0) -> int:
        """One pass, that much later. Returns how many objects it read."""
        self.time += after
        self.store.reset()
        await self.collector.collect(self.managed, self.topic, lambda: self.hosted)
        return len(self.store.requests.reads)


async def test_a_topic_without_superseded_chunks_costs_no_request(store: Store) -> None:
    leader = Leader(store, make_topic(store, 3, CHUNKS))
    for _ in range(3):
        assert await leader.collect(after=HOUR) == 0
    assert leader.store.requests.listings == 0


async def test_what_was_deleted_once_costs_no_request_again(store: Store, topic: Topic) -> None:
    leader = Leader(store, topic)
    assert await leader.collect() > 0
    assert await leader.collect(after=HOUR // 2) == 0, "it waits"
    await leader.collect(after=HOUR)
    assert chunks(store) == 2
    assert leader.collector.deleted_files == CHUNKS - 1
    for _ in range(3):
        assert await leader.collect(after=HOUR) == 0


async def test_a_leader_that_starts_goes_on_by_what_the_index_says(store: Store, topic: Topic) -> None:
    await Leader(store, topic).collect()
    later = Leader(store, topic)
    await later.collect(after=HOUR)
    assert chunks(store) == 2


async def test_the_leader_records_what_the_index_names_and_not_what_it_knows(store: Store, topic: Topic) -> None:
    leader = Leader(store, topic)
    leader.managed.index.name_file_lists({segment_name(): paths.file_list_name(segment_name(), 7, "old")})
    await leader.collect()
    record = record_of(store)
    assert record is not None and record.file_list == index_of(store)[0].file_list
    assert await leader.collect(after=MINUTE) == 0, "it knows what the index names now"


async def test_a_leader_learns_what_another_one_has_recorded(store: Store, topic: Topic) -> None:
    leader = Leader(store, topic)
    await Leader(store, topic).collect()
    assert await leader.collect(after=MINUTE) > 0
    assert await leader.collect(after=MINUTE) == 0


async def test_a_leader_goes_on_soon_with_what_one_pass_has_left(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superseded_chunks, "MAX_CHUNKS_PER_CALL", 5)
    topic = make_topic(store, 1, CHUNKS)
    compact(store, target_bytes=33_000)
    leader = Leader(store, topic)
    await leader.collect()
    await leader.collect(after=HOUR)
    assert 3 < chunks(store) < CHUNKS
    await leader.collect(after=SETTINGS.retention_interval_us)
    assert chunks(store) == 3


async def test_a_leader_that_is_paused_while_it_reads_the_index_does_not_shorten_the_grace(
    store: Store, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it reads may have been named a moment ago, so the time before the pause would be too early."""
    leader = Leader(store, topic)
    read, pauses = leader.store.get, [HOUR]

    def get(path: str) -> StoredObject:
        if path == paths.index_page(NAME, UID, 0) and pauses:
            leader.time += pauses.pop()
        return read(path)

    monkeypatch.setattr(leader.store, "get", get)
    await leader.collect()
    record = record_of(store)
    assert record is not None and (record.since, record.filer_since) == (YEAR + HOUR, YEAR + HOUR)


async def test_what_is_in_the_layout_is_left_alone(store: Store, topic: Topic) -> None:
    """The index has a segment a moment before the layout loses it."""
    found = layouts.read_layout(store, NAME, UID)
    assert found is not None
    (living,) = found[0].segments
    sealing = replace(
        living, name=segment_name(), number=0, phase=Phase.SEALING, predecessors=(), successors=(living.name,)
    )
    layouts.put_layout(store, replace(found[0], segments=(sealing, living)), found[1], POLICY)
    assert read_consistent(store, topic) is not None
    await Leader(store, topic).collect()
    assert record_of(store) is None


async def test_what_a_broker_keeps_is_looked_at_again_in_a_while(store: Store, topic: Topic) -> None:
    leader = Leader(store, topic)
    await leader.collect()
    leader.hosted = {segment_name()}
    assert await leader.collect(after=HOUR) > 0
    leader.hosted = set()
    assert await leader.collect(after=MINUTE - 1) == 0
    await leader.collect(after=1)
    assert chunks(store) == 2


async def test_a_segment_that_is_not_as_it_should_be_is_reported_until_it_is(store: Store, topic: Topic) -> None:
    leader = Leader(store, topic)
    await leader.collect()
    path = ChunkChain(store, NAME, UID, segment_name()).path(3 * ROWS)
    data = bytes(store.get(path).data)
    store.put(path, b"damaged")
    await leader.collect(after=HOUR)
    assert leader.problems.unreadable_documents() == [path]
    assert await leader.collect(after=RETRY_AFTER_US - SECOND) == 0
    store.put(path, data)
    await leader.collect(after=SETTINGS.retention_interval_us)
    assert leader.problems.unreadable_documents() == []
    assert chunks(store) == 2


async def test_a_damaged_file_list_is_left_to_the_namer_to_report(store: Store, topic: Topic) -> None:
    leader = Leader(store, topic)
    await leader.collect()
    store.put(paths.file_list(NAME, UID, index_of(store)[0].file_list), b"{")
    await leader.collect(after=HOUR)
    assert leader.problems.all() == [] and chunks(store) == CHUNKS + 1


async def test_a_problem_ends_with_the_file_list_that_had_it(store: Store, topic: Topic) -> None:
    leader = Leader(store, topic)
    await leader.collect()
    store.put(ChunkChain(store, NAME, UID, segment_name()).path(3 * ROWS), b"damaged")
    await leader.collect(after=HOUR)
    assert leader.problems.unreadable_documents()
    file_list, following = index_of(store)[0].file_list, paths.file_list_name(segment_name(), 2, "next")
    assert sealed_index.name_file_list(store, NAME, UID, segment_name(), file_list, following)
    leader.managed.index.merge(sealed_index.load(store, NAME, UID))
    await leader.collect(after=MINUTE)
    assert leader.problems.unreadable_documents() == []


async def test_an_index_that_cannot_be_read_is_the_callers_problem(store: Store, topic: Topic) -> None:
    leader = Leader(store, topic)
    store.put(paths.index_page(NAME, UID, 0), b"{")
    with pytest.raises(CorruptDocument):
        await leader.collect()


def test_the_search_for_orphans_finds_what_other_processes_have_compacted(store: Store, topic: Topic) -> None:
    entry: SealedSegment = index_of(store)[0]
    assert collect_orphaned_files(store, topic, NOW).named == {segment_name(): entry.file_list}
