"""Retention of a leader that is paused after it has read the groups: it judges by what it read before them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from smq_core.model.entities import Topic, TopicSpec
from smq_core.reconcile.retention import GroupProgress
from smq_operator.cleanup.trim import TrimRequest
from smq_operator.platform_port import DesiredTopic
from smq_operator.reconcile.topics.index_copy import IndexCopy
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_storage.catalog import group_positions, sealed_index
from smq_storage.catalog.group_positions import CommittedPositions
from smq_storage.object_store.store import Store, open_store
from support import virtual_time
from support.data.sealed_topic import END, put_chain, sealed_entry, segment_name, write_segment
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory

SECOND = 1_000_000
PAUSE_SECONDS = 10
NAME, UID = "default/t", "uid-1"


class PausedGroups:
    """The groups of a leader's retention. After they are read, the leader is paused, and ``meanwhile`` happens."""

    def __init__(self, leader: LeaderInMemory, meanwhile: Callable[[], object]) -> None:
        self._groups = leader.groups
        self._meanwhile = meanwhile

    async def states(self, managed: ManagedTopic, topic: Topic) -> list[GroupProgress]:
        found = await self._groups.states(managed, topic)
        await asyncio.sleep(PAUSE_SECONDS)
        self._meanwhile()
        return found


def begin_group(store: Store) -> None:
    """Another leader serves it."""
    group_positions.put_positions(
        store, NAME, UID, "g", CommittedPositions(generation=1, positions={segment_name(0): 0}, writer="w"), None
    )


def seal_another(store: Store) -> None:
    begin_group(store)
    sealed_index.append(store, NAME, UID, [sealed_entry(3, END, bytes=100)])


def removed(store: Store) -> list[str]:
    return [segment.name for segment in sealed_index.load(store, NAME, UID).removed_segments]


def make(
    store: Store, sealed_at: tuple[int, ...], meanwhile: Callable[[Store], None], **spec: int | None
) -> tuple[LeaderInMemory, ManagedTopic, Topic]:
    """A leader, and a topic with segments of 100 bytes that were sealed at these seconds. The next one is open."""
    topic = Topic(NAME, UID, TopicSpec(partitions=16, **spec))  # type: ignore[arg-type]
    entries = []
    for number, seconds in enumerate(sealed_at):
        write_segment(store, topic, segment_name(number))
        at = virtual_time.EPOCH + seconds * SECOND
        entries.append(replace(sealed_entry(number, END, bytes=100), opened_at=at - SECOND, sealed_at=at))
    put_chain(store, topic, entries)
    managed = ManagedTopic(DesiredTopic(name=NAME, spec=topic.spec), topic, index=IndexCopy(is_read=True))
    managed.index.merge(sealed_index.load(store, NAME, UID))
    leader = LeaderInMemory(FakePlatform(), FakeFleet(store), store)
    leader.garbage_collector._groups = PausedGroups(leader, lambda: meanwhile(store))
    return leader, managed, topic


@virtual_time.virtual_time
async def test_what_expires_during_the_pause_stays_for_groups_that_begin_in_it() -> None:
    store = open_store("memory://")
    leader, managed, topic = make(store, (0, 4, 4), begin_group, retention_age=5 * SECOND)
    await leader.parts.filer_clock.read()
    await asyncio.sleep(6)  # the first segment is 6 s old by both clocks, the others 2 s by the leader's
    await leader.garbage_collector._apply_retention(managed, topic)
    assert removed(store) == [segment_name(0)]


@virtual_time.virtual_time
async def test_segments_that_are_sealed_during_the_pause_make_no_other_one_expire() -> None:
    store = open_store("memory://")
    leader, managed, topic = make(store, (0, 1, 2), seal_another, retention_age=None, retention_bytes=250)
    await leader.garbage_collector._apply_retention(managed, topic)
    assert removed(store) == [segment_name(0)]


@virtual_time.virtual_time
async def test_what_retention_and_a_trim_remove_at_the_same_time_is_counted_once() -> None:
    store = open_store("memory://")
    leader, managed, topic = make(store, (0, 4, 4), lambda store: None, retention_age=5 * SECOND)
    collector = leader.garbage_collector
    await leader.parts.filer_clock.read()
    await asyncio.sleep(6)
    before = virtual_time.EPOCH + SECOND
    await asyncio.gather(collector._collect_topic(managed, topic), collector.trim(managed, topic, TrimRequest(before)))
    assert removed(store) == [segment_name(0)]
    assert collector.removed[NAME] == 1 and collector.removed_bytes[NAME] == 100
    assert [it.action for it in leader.decisions.recent] == ["retention"]
