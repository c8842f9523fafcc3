"""A leader may be stopped between any two effects, and two may lead at once: the work is done and nothing is lost."""

from __future__ import annotations

import asyncio

import pytest

from smq_core.invariants import ring_is_covered
from smq_core.model.entities import Layout, Phase
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_storage.catalog import layouts, sealed_index
from smq_storage.catalog.topics import read_current
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store, open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


class InterruptedFailover:
    """A topic on three brokers whose first segment holds messages; one broker is dead by the time the leader looks."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        self.platform = FakePlatform()
        self.brokers = [self.fleet.add(f"b{i}") for i in range(3)]
        self.acked: dict[str, int] = {}
        self.platform.add_topic(TOPIC, min_segments=2)

    def leader(self) -> LeaderInMemory:
        return LeaderInMemory(self.platform, self.fleet, self.store)

    @property
    def uid(self) -> str:
        found = read_current(self.store, TOPIC)
        assert found is not None
        return found[0]

    def layout(self) -> Layout | None:
        current = read_current(self.store, TOPIC)
        found = layouts.read_layout(self.store, TOPIC, current[0]) if current is not None else None
        return found[0] if found is not None else None

    def kill(self, incarnation: str) -> None:
        self.fleet.brokers[incarnation].living = False
        self.platform.terminated[incarnation] = "killed by the test"

    async def begin(self) -> None:
        """Two open segments with messages; then the first one's primary dies."""
        first = self.leader()
        async with running_leader(first):
            await wait_until(lambda: self.is_quiet(first), what="the first layout")
            layout = self.layout()
            assert layout is not None
            for segment in layout.segments:
                self.fleet.write(self.uid, segment, 10)
                self.acked[segment.name] = 10
        self.kill(layout.segments[0].primary.incarnation)
        self.fleet.add("b0")

    def is_quiet(self, leader: LeaderInMemory) -> bool:
        """Every segment is open, on running brokers that host it."""
        managed = leader.topics.get(TOPIC)
        layout = managed.layout if managed is not None else None
        if layout is None or not leader.tasks.idle or not layout.segments:
            return False
        return all(
            s.phase is Phase.OPEN
            and not s.successors
            and all(
                self.fleet.brokers[r.incarnation].living
                and (layout.uid, s.name) in self.fleet.brokers[r.incarnation].held
                for r in s.replicas
            )
            for s in layout.segments
        )

    def check(self) -> None:
        """What must be true of the store when nothing is in progress."""
        layout, uid = self.layout(), self.uid
        assert layout is not None
        assert not ring_is_covered(layout)
        sealed = {entry.name: entry for entry in sealed_index.read(self.store, TOPIC, uid)}
        assert len(sealed) == len(sealed_index.read(self.store, TOPIC, uid)), "an entry is in the index twice"
        assert not sealed.keys() & {s.name for s in layout.segments}
        for name, entry in sealed.items():
            seal = ChunkChain(self.store, TOPIC, uid, name).read_seal_chunk()
            assert seal is not None and seal.first == entry.end, name
            for successor in entry.successors:
                assert successor in sealed or successor in layout, "the DAG has a hole"
        for name, acked in self.acked.items():
            assert name in layout or sealed[name].end >= acked, f"{name} lost acked messages"


async def interrupted(left: int, how: str) -> int:
    """Returns 1 when the first leader was stopped on its way, 0 when it had finished before."""
    interrupted_failover = InterruptedFailover()
    await interrupted_failover.begin()
    first = interrupted_failover.leader()
    first.effects.left, first.effects.how = left, how
    async with running_leader(first):
        await wait_until(lambda: first.effects.done > left or interrupted_failover.is_quiet(first))
        await asyncio.sleep(0.1)  # whatever is still under way goes as far as it can
    cut = first.effects.done > left
    second = interrupted_failover.leader()
    async with running_leader(second):
        await wait_until(
            lambda: interrupted_failover.is_quiet(second), what=f"the second leader, after {left} effects ({how})"
        )
    interrupted_failover.check()
    return int(cut)


@pytest.mark.parametrize("how", ["before", "answer_lost", "stuck"])
@virtual_time
async def test_a_leader_stopped_after_any_effect_is_followed_by_one_that_finishes(how):
    cut = await asyncio.gather(*(interrupted(left, how) for left in range(24)))
    assert sum(cut) >= 8, f"only {sum(cut)} of the leaders were stopped on their way"


@virtual_time
async def test_two_leaders_at_once_do_no_harm():
    interrupted_failover = InterruptedFailover()
    await interrupted_failover.begin()
    leaders = [interrupted_failover.leader(), interrupted_failover.leader()]
    async with running_leader(*leaders):
        for turn in range(6):
            await wait_until(lambda: all(interrupted_failover.is_quiet(it) for it in leaders), "both agree")
            versions = {it.topics[TOPIC].layout.version for it in leaders}  # type: ignore[union-attr]
            for leader in leaders:
                managed = leader.topics[TOPIC]
                assert managed.layout is not None and managed.reconciler is not None
                names = [s.name for s in managed.layout.segments]
                managed.reconciler.requests.waiting.append(
                    SegmentChange(SegmentAction.ROLL, (names[turn % len(names)],))
                )
                leader.queue.enqueue()
            await wait_until(
                lambda old=versions: all(
                    it.topics[TOPIC].layout.version > max(old)  # type: ignore[union-attr]
                    for it in leaders[:1]
                )
            )
            # The one that lost learns of it when it wants something itself.
            for leader in leaders:
                managed = leader.topics[TOPIC]
                if managed.reconciler is not None:
                    managed.reconciler.layout_known = False
                leader.queue.enqueue()
        await wait_until(lambda: all(interrupted_failover.is_quiet(it) for it in leaders), "both agree in the end")
        assert [it.topics[TOPIC].layout for it in leaders] == [interrupted_failover.layout()] * 2
    interrupted_failover.check()
