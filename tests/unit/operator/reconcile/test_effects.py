"""What the leader reads from the filer is taken only if it is not older than what the leader knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from smq_core.errors import StoreStateUnknown, Unavailable
from smq_core.model.entities import Layout
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.answers import ChangeRequested
from smq_core.reconcile.effects import PutLayout, ReadLayout
from smq_operator.reconcile.manual_requests import wait_until_written
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_storage.catalog import paths
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.json_codec import to_json
from smq_storage.object_store.store import Store, open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


@asynccontextmanager
async def topic_with_layout() -> AsyncIterator[tuple[LeaderInMemory, ManagedTopic, Layout]]:
    """A leader whose loop has ended, one of its topics, and the layout that it knows."""
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for number in range(3):
        fleet.add(f"b{number}")
    platform.add_topic(TOPIC)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].layout is not None)
        await wait_until(lambda: leader.tasks.idle)
        await leader.loop.stop()
        managed = leader.topics[TOPIC]
        assert managed.reconciler is not None and managed.reconciler.layout is not None
        yield leader, managed, managed.reconciler.layout


def overwrite(store: Store, layout: Layout) -> None:
    store.put(paths.layout(layout.topic, layout.uid), to_json(layout))


async def read_layout(leader: LeaderInMemory, managed: ManagedTopic) -> Layout | None:
    assert managed.reconciler is not None
    await leader.effects.run(managed, managed.reconciler, ReadLayout())
    return managed.reconciler.layout


@virtual_time
async def test_a_layout_that_is_newer_than_the_known_one_is_taken():
    async with topic_with_layout() as (leader, managed, known):
        newer = replace(known, version=known.version + 1, writer="another leader")
        overwrite(leader.store, newer)
        assert await read_layout(leader, managed) == newer


@virtual_time
async def test_a_layout_that_is_older_than_the_known_one_is_not_taken():
    async with topic_with_layout() as (leader, managed, known):
        overwrite(leader.store, replace(known, version=known.version - 1, writer="a delayed answer"))
        assert await read_layout(leader, managed) is known


@virtual_time
async def test_an_index_that_is_behind_its_layout_is_not_taken():
    async with topic_with_layout() as (leader, managed, known):
        (segment,) = known.segments
        successor = replace(segment, name=f"{segment.name[:-1]}1", number=1, predecessors=(segment.name,))
        newer = replace(known, version=known.version + 1, next_number=2, segments=(successor,), writer="another leader")
        overwrite(leader.store, newer)
        assert await read_layout(leader, managed) is known, "the index does not have the predecessor yet"


class FailingStore:
    """A filer that does not answer writes of layouts."""

    retry_policy = RetryPolicy()

    async def run(self, *_: object) -> str:
        raise StoreStateUnknown("no clear answer from s3://smq")


@virtual_time
async def test_a_manual_request_that_waits_for_the_filer_says_so(monkeypatch: pytest.MonkeyPatch):
    async with topic_with_layout() as (leader, managed, known):
        assert managed.reconciler is not None
        wanted = SegmentChange(SegmentAction.ROLL, (known.segments[0].name,))
        managed.reconciler.handle(ChangeRequested(wanted), 0)
        with pytest.raises(Unavailable, match="pending: no broker is available"):
            await wait_until_written(managed, wanted)
        monkeypatch.setattr(leader.effects, "_store", FailingStore())
        await leader.effects.run(managed, managed.reconciler, PutLayout(known, None))
        with pytest.raises(Unavailable, match=r"the filer does not answer \(no clear answer from s3://smq"):
            await wait_until_written(managed, wanted)


@virtual_time
async def test_a_request_that_a_restart_of_its_topic_dropped_was_not_written() -> None:
    async with topic_with_layout() as (leader, managed, known):
        assert managed.reconciler is not None
        wanted = SegmentChange(SegmentAction.ROLL, (known.segments[0].name,))
        managed.reconciler.handle(ChangeRequested(wanted), 0)
        waiting = asyncio.ensure_future(wait_until_written(managed, wanted))
        await asyncio.sleep(0)
        leader.sync.restart(managed, "broken by the test")
        managed.notify_changed()
        with pytest.raises(Unavailable, match=r"restarted this topic and dropped the roll of .* repeat the command"):
            await waiting


@virtual_time
async def test_an_effect_of_a_former_reconciler_that_fails_restarts_no_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with topic_with_layout() as (leader, managed, _):
        former = managed.reconciler
        assert former is not None and managed.topic is not None
        managed.start_reconciler(managed.topic, 0)
        newer = managed.reconciler

        async def fail(*_: object) -> None:
            raise ZeroDivisionError("a mistake")

        monkeypatch.setattr(leader.effects, "run", fail)
        await leader.loop._run_effect(managed, former, ReadLayout())
        assert managed.reconciler is newer
