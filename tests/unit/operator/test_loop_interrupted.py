"""A leader may be stopped between any two effects, and two may lead at once: the work is done and nothing is lost."""

from __future__ import annotations

import asyncio

import pytest

from smq_core.decide import Request
from smq_core.invariants import ring_is_covered
from smq_core.model import Layout, Phase
from smq_storage import index, layouts
from smq_storage.chain import Chain
from smq_storage.store import Store, open_store
from smq_storage.topics import read_current
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, leading, until

TOPIC = "default/t"


class Scene:
    """A topic on three brokers whose first segment holds messages; one broker is dead by the time the leader looks."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        self.world = FakeWorld()
        self.brokers = [self.fleet.add(f"b{i}") for i in range(3)]
        self.acked: dict[str, int] = {}
        self.world.wish(TOPIC, min_segments=2)

    def leader(self) -> LeaderInMemory:
        return LeaderInMemory(self.world, self.fleet, self.store)

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
        self.world.dead[incarnation] = "killed by the test"

    async def begin(self) -> None:
        """Two open segments with messages; then the first one's primary dies."""
        first = self.leader()
        async with leading(first):
            await until(lambda: self.is_quiet(first), what="the first layout")
            layout = self.layout()
            assert layout is not None
            for segment in layout.segments:
                self.fleet.write(self.uid, segment, 10)
                self.acked[segment.name] = 10
        self.kill(layout.segments[0].primary.incarnation)
        self.fleet.add("b0")

    def is_quiet(self, leader: LeaderInMemory) -> bool:
        """Every segment is open, on living brokers that hold it."""
        run = leader.loop.topics.get(TOPIC)
        layout = run.layout if run is not None else None
        if layout is None or leader.loop._tasks or not layout.segments:
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
        """What must be true of the store when everything has come to rest."""
        layout, uid = self.layout(), self.uid
        assert layout is not None
        assert not ring_is_covered(layout)
        sealed = {entry.name: entry for entry in index.read(self.store, TOPIC, uid)}
        assert len(sealed) == len(index.read(self.store, TOPIC, uid)), "an entry is in the index twice"
        assert not sealed.keys() & {s.name for s in layout.segments}
        for name, entry in sealed.items():
            seal = Chain(self.store, TOPIC, uid, name).seal()
            assert seal is not None and seal.first == entry.end, name
            for successor in entry.successors:
                assert successor in sealed or successor in layout, "the DAG has a hole"
        for name, acked in self.acked.items():
            assert name in layout or sealed[name].end >= acked, f"{name} lost acked messages"


async def interrupted(left: int, how: str) -> int:
    """Returns 1 when the first leader was stopped on its way, 0 when it had finished before."""
    scene = Scene()
    await scene.begin()
    first = scene.leader()
    first.effects.left, first.effects.how = left, how
    async with leading(first):
        await until(lambda: first.effects.done > left or scene.is_quiet(first))
        await asyncio.sleep(0.1)  # whatever is still under way goes as far as it can
    cut = first.effects.done > left
    second = scene.leader()
    async with leading(second):
        await until(lambda: scene.is_quiet(second), what=f"the second leader, after {left} effects ({how})")
    scene.check()
    return int(cut)


@pytest.mark.parametrize("how", ["before", "unheard", "stuck"])
def test_a_leader_stopped_after_any_effect_is_followed_by_one_that_finishes(how):
    async def every() -> list[int]:
        return await asyncio.gather(*(interrupted(left, how) for left in range(24)))

    cut = asyncio.run(every())
    assert sum(cut) >= 8, f"only {sum(cut)} of the leaders were stopped on their way"


def test_two_leaders_at_once_do_no_harm():
    async def both() -> None:
        scene = Scene()
        await scene.begin()
        leaders = [scene.leader(), scene.leader()]
        async with leading(*leaders):
            for turn in range(6):
                await until(lambda: all(scene.is_quiet(it) for it in leaders), 20, "both agree")
                versions = {it.loop.topics[TOPIC].layout.version for it in leaders}  # type: ignore[union-attr]
                for leader in leaders:
                    run = leader.loop.topics[TOPIC]
                    assert run.layout is not None and run.leader is not None
                    names = [s.name for s in run.layout.segments]
                    run.leader.requests.append(Request("roll", (names[turn % len(names)],)))
                    leader.loop.kick()
                await until(
                    lambda old=versions: all(
                        it.loop.topics[TOPIC].layout.version > max(old)  # type: ignore[union-attr]
                        for it in leaders[:1]
                    )
                )
                # The one that lost learns of it when it wants something itself.
                for leader in leaders:
                    run = leader.loop.topics[TOPIC]
                    if run.leader is not None:
                        run.leader._known = False
                    leader.loop.kick()
            await until(lambda: all(scene.is_quiet(it) for it in leaders), 20, "both agree in the end")
            assert [it.loop.topics[TOPIC].layout for it in leaders] == [scene.layout()] * 2
        scene.check()

    asyncio.run(both())
