"""Retention of topics that Kafka clients read: what their groups hold, and what is read to find that out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from smq_core.errors import StoreUnavailable
from smq_core.kafka_groups.offsets import CommittedOffset, TopicOffsets
from smq_core.model.entities import SECOND, Topic
from smq_core.model.keyspace import KeyRange
from smq_core.reconcile.kafka_retention import KafkaGroupProgress
from smq_core.reconcile.retention import RetentionPlan
from smq_operator.cleanup.filer_clock import ClockReading, FilerClock
from smq_operator.cleanup.kafka_retention import KafkaReaders
from smq_operator.cleanup.kafka_silence import MAX_UNSEEN, REJOIN_TIME, KafkaSilence
from smq_operator.cleanup.retention import read_consistent, remove_expired
from smq_operator.cleanup.trim import Trim, TrimRequest, trim_topic
from smq_operator.groups.kafka_groups import KafkaGroups
from smq_operator.platform_port import DesiredTopic
from smq_operator.reconcile.topics.index_copy import IndexCopy
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.problems import LeaderProblems
from smq_operator.runtime.store_pool import StorePool
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.filer_time import modified_at
from smq_storage.catalog.kafka_groups import StoredKafkaGroup, put_kafka_group, read_kafka_group
from smq_storage.catalog.topics import put_current, put_topic
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store
from support import virtual_time
from support.data.clocks import leader_at
from support.data.counted_topic import HOLDER, CountedTopic
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory

RETRY_POLICY = RetryPolicy(2.0)
HOUR = 3600 * SECOND


class OldTopic:
    """A topic with two sealed segments, which have expired, and an open one.

    Partition 0 has 2 messages in the first and 1 in the second, partition 1 has 1 in the first.
    """

    def __init__(self, store: Store, **spec: Any) -> None:
        self.store = store
        counted = CountedTopic(store, 2)
        self.topic = Topic(
            counted.topic.name, counted.topic.uid, replace(counted.topic.spec, **{"retention_age": 1, **spec})
        )
        put_current(store, self.topic.name, self.topic.uid, None)
        put_topic(store, self.topic)
        self.first = counted.open()
        counted.write(self.first, [0, 0, 1])
        counted.seal(self.first)
        counted.index(self.first)
        self.second = counted.open(KeyRange(0, 2), [self.first])
        counted.write(self.second, [0])
        counted.seal(self.second)
        counted.index(self.second)
        self.living = counted.open(KeyRange(0, 2), [self.second])

    def collect(self, *offsets: Mapping[int, int], readers: KafkaReaders | None = None) -> RetentionPlan:
        readers = readers or KafkaReaders([KafkaGroupProgress(f"g{at}", it) for at, it in enumerate(offsets)])
        known, started = read_consistent(self.store, self.topic), {(HOLDER.incarnation, self.living)}
        return remove_expired(
            self.store, self.topic, known, [], started, leader_at(9**15), RETRY_POLICY, readers=readers
        )


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def removed(plan: RetentionPlan) -> list[str]:
    return [it.segment.name for it in plan.removals]


def test_segments_stay_until_a_group_has_committed_their_ends(store: Store) -> None:
    old = OldTopic(store)
    held = old.collect({0: 2}, {0: 3, 1: 1})
    assert removed(held) == [] and held.retained == {old.first: ["g0 (Kafka)"]}
    assert removed(old.collect({0: 2, 1: 1}, {0: 3, 1: 1})) == [old.first]
    assert removed(old.collect({0: 2, 1: 1})) == []
    # Of partition 1 the second segment has no message, so nothing has to be committed there.
    assert removed(old.collect({0: 3})) == [old.second]


def test_what_was_read_of_a_segment_is_kept_while_it_is_held(store: Store) -> None:
    old = OldTopic(store)
    readers = KafkaReaders([KafkaGroupProgress("g", {})])
    old.collect(readers=readers)
    assert list(readers.offsets) == [old.first]
    known = readers.offsets[old.first]
    old.collect(readers=readers)
    assert readers.offsets[old.first] is known
    readers.groups = [KafkaGroupProgress("g", {0: 2, 1: 1})]
    old.collect(readers=readers)
    assert list(readers.offsets) == [old.second]


def test_a_segment_without_its_seal_chunk_stays(store: Store) -> None:
    old = OldTopic(store, retention_age=None, retention_bytes=-1)
    store.delete(ChunkChain(store, old.topic.name, old.topic.uid, old.first).path(3))
    assert removed(old.collect({0: 3, 1: 1})) == []
    assert removed(old.collect()) == [old.first, old.second]


def test_a_trim_says_who_has_not_read_what_it_removes(store: Store) -> None:
    old = OldTopic(store)
    readers = KafkaReaders([KafkaGroupProgress("g", {0: 1})])
    known, started = read_consistent(store, old.topic), {(HOLDER.incarnation, old.living)}

    def trim(*, skip_unread: bool) -> Trim:
        request = TrimRequest(10**15, preview=True, skip_unread=skip_unread)
        return trim_topic(
            store, old.topic, request, known, [], started, leader_at(9**16), RETRY_POLICY, not_held, readers
        )

    assert [dict(it.kafka_unread) for it in trim(skip_unread=True).removals] == [{"g": 2}, {"g": 1}]
    kept = trim(skip_unread=False)
    assert kept.removals == [] and kept.kept[old.first] == "not read to its end by g (Kafka)"


def not_held(store: Store, topic: Topic, retry_policy: RetryPolicy) -> bool:
    return False


@pytest.mark.parametrize("has_group", [False, True])
@virtual_time.virtual_time
async def test_the_leader_reads_the_groups_before_it_removes(has_group: bool) -> None:
    store = open_store("memory://")
    old = OldTopic(store, retention_age=5 * SECOND)
    managed = ManagedTopic(
        DesiredTopic(name=old.topic.name, spec=old.topic.spec), old.topic, index=IndexCopy(is_read=True)
    )
    managed.index.merge(sealed_index.load(store, old.topic.name, old.topic.uid))
    leader = LeaderInMemory(FakePlatform(), FakeFleet(store), store)
    if has_group:
        commit(store, old.topic, "g", 0)
    await leader.parts.filer_clock.read()
    await asyncio.sleep(6)
    await leader.garbage_collector._apply_retention(managed, old.topic)
    removed = [it.name for it in sealed_index.load(store, old.topic.name, old.topic.uid).removed_segments]
    assert removed == ([] if has_group else [old.first])
    assert dict(managed.retention_held) == ({old.first: ["g (Kafka)"]} if has_group else {})


# ---- documents


class Leader:
    """``gets`` are the documents of groups that it has read."""

    def __init__(self, store: Store, topic: Topic) -> None:
        self.store, self.topic = store, topic
        self.now = modified_now(store)
        self.gets: list[str] = []
        self.fails = False
        pool = StorePool(self, None)  # type: ignore[arg-type]
        self.filer_clock = FilerClock(pool, lambda: self.now)
        self.problems = LeaderProblems()
        self.groups = KafkaGroups(pool, lambda: self.now, self.filer_clock, self.problems)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def get(self, path: str) -> Any:
        if path.startswith(paths.KAFKA_GROUPS):
            if self.fails:
                raise StoreUnavailable("away")
            self.gets.append(path)
        return self.store.get(path)

    async def progress(self, *, can_be_inactive: bool = True) -> list[KafkaGroupProgress]:
        clocks = await self.filer_clock.read()
        return await self.groups.progress(self.topic, clocks, can_be_inactive=can_be_inactive)


def modified_now(store: Store) -> int:
    store.put("x", b"")
    return modified_at(store, "x")


def commit(store: Store, topic: Topic, name: str, offset: int, **more: Any) -> None:
    known = read_kafka_group(store, name)
    offsets = {topic.uid: TopicOffsets(topic.name, {0: CommittedOffset(offset, at=more.pop("at", 0))})}
    put_kafka_group(
        store,
        StoredKafkaGroup(name=name, writer=f"w{offset}", **{"offsets": offsets} | more),
        known[1] if known else None,
        RETRY_POLICY,
    )


async def test_only_documents_that_have_changed_are_read_again(store: Store) -> None:
    leader = Leader(store, OldTopic(store).topic)
    commit(store, leader.topic, "a", 1)
    commit(store, leader.topic, "b", 1)
    assert {it.name: dict(it.offsets) for it in await leader.progress()} == {"a": {0: 1}, "b": {0: 1}}
    await leader.progress()
    assert len(leader.gets) == 4, "they were written in this second, and may be written again in it"
    leader.now += 10 * SECOND
    await leader.progress()
    leader.gets.clear()
    await leader.progress()
    assert leader.gets == []
    commit(store, leader.topic, "b", 100)
    assert {it.name: dict(it.offsets) for it in await leader.progress()} == {"a": {0: 1}, "b": {0: 100}}
    assert leader.gets == [paths.kafka_group("b")]


async def test_groups_of_other_topics_and_deleted_ones_do_not_count(store: Store) -> None:
    leader = Leader(store, OldTopic(store).topic)
    commit(store, Topic("default/other", "uid-9", leader.topic.spec), "other", 1)
    commit(store, leader.topic, "deleted", 1, offsets={}, deleted=True)
    commit(store, leader.topic, "mine", 1)
    assert [it.name for it in await leader.progress()] == ["mine"]


async def test_nothing_is_known_of_groups_while_a_document_is_not_returned(store: Store) -> None:
    leader = Leader(store, OldTopic(store).topic)
    commit(store, leader.topic, "a", 1)
    leader.fails = True
    with pytest.raises(StoreUnavailable):
        await leader.progress()


async def test_a_group_with_a_damaged_document_has_read_nothing(store: Store) -> None:
    leader = Leader(store, OldTopic(store).topic)
    store.put(paths.kafka_group("bad"), b"{")
    commit(store, leader.topic, "good", 1)
    assert await leader.progress() == [KafkaGroupProgress("bad", {}), KafkaGroupProgress("good", {0: 1}, None)]
    assert list(leader.problems.unreadable_documents()) == [paths.kafka_group("bad")]


async def test_a_group_is_as_active_as_the_later_of_both_clocks_says(store: Store) -> None:
    leader = Leader(store, OldTopic(store).topic)
    written = leader.now
    commit(store, leader.topic, "g", 1, active_at=written - 50 * HOUR, at=written - 90 * HOUR)

    async def active_at(leader_at: int, filer_at: int, **more: bool) -> int | None:
        clocks = ClockReading(leader=leader_at, filer=filer_at)
        (it,) = await leader.groups.progress(leader.topic, clocks, **{"can_be_inactive": True} | more)
        return it.last_active_at

    modified = modified_at(store, paths.kafka_group("g"))
    assert await active_at(written, modified + HOUR) == written - HOUR
    assert await active_at(written, modified + 200 * HOUR) == written - 50 * HOUR
    assert await active_at(written, modified + 200 * HOUR, can_be_inactive=False) is None


# ---- silence


class Brokers:
    def __init__(self) -> None:
        self.address = "b:9092"

    def alive(self, now: int) -> list[Brokers]:
        return [self]

    @property
    def kafka_address(self) -> str:
        return self.address


def test_silence_counts_only_while_groups_could_write() -> None:
    brokers = Brokers()
    silence = KafkaSilence(brokers)  # type: ignore[arg-type]

    def counts(now: int, answers_since: int = 0) -> bool:
        return silence.counts(ClockReading(leader=now, filer=now, answers_since=answers_since))

    def pass_time(start: int, stop: int) -> None:
        for now in range(start, stop + 1, SECOND):
            silence.observe(now)

    start = HOUR
    assert not counts(start)
    pass_time(start, start + REJOIN_TIME)
    assert not counts(start + REJOIN_TIME - 1) and counts(start + REJOIN_TIME)
    assert not counts(start + REJOIN_TIME, answers_since=start + 1)
    now = start + REJOIN_TIME
    brokers.address = ""
    silence.observe(now)
    brokers.address = "b:9092"
    pass_time(now, now + REJOIN_TIME - SECOND)
    assert not counts(now + REJOIN_TIME - SECOND)
    pass_time(now, now + REJOIN_TIME)
    now += REJOIN_TIME + MAX_UNSEEN + SECOND
    silence.observe(now)
    assert not counts(now), "nobody knows what was in between"
