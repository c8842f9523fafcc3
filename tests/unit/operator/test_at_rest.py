"""A topic to which nobody writes costs little, and is as quick as any other when something happens."""

from __future__ import annotations

import asyncio

from smq_core.load import Counters
from smq_operator import topic as topics
from smq_operator.registry import work_of
from smq_storage.store import open_store
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, leading, until

TOPIC = "default/t"


async def at_rest(leader: LeaderInMemory) -> topics.TopicRun:
    await until(lambda: TOPIC in leader.loop.topics and (it := leader.loop.topics[TOPIC].leader) and it.rests, 30)
    run = leader.loop.topics[TOPIC]
    await until(lambda: run.look_at > leader.loop.now() + topics.LOOK_EVERY, 30)
    return run


def started(brokers: str = "abc") -> LeaderInMemory:
    store = open_store("memory://")
    fleet, world = FakeFleet(store), FakeWorld(len(brokers))
    for name in brokers:
        fleet.add(name)
    world.wish(TOPIC, min_segments=3)
    return LeaderInMemory(world, fleet, store)


def test_a_dead_broker_is_replaced_at_once_and_not_at_the_next_look() -> None:
    async def main() -> None:
        leader = started()
        async with leading(leader):
            run = await at_rest(leader)
            assert run.layout is not None
            dead = run.layout.segments[0].primary.incarnation
            run.look_at = 1 << 62  # nobody looks at it again for its own sake
            leader.world.dead[dead] = "its process was reaped"
            await until(lambda: run.layout is not None and dead not in str(run.layout.segments), 30)

    asyncio.run(main())


def test_who_writes_to_it_wakes_it() -> None:
    async def main() -> None:
        leader = started()
        async with leading(leader):
            run = await at_rest(leader)
            assert run.leader is not None and run.layout is not None
            name, now = run.layout.segments[0].name, leader.loop.now()
            for second in (0, 1):
                run.leader.load.observe(name, Counters(7, 7, 7), now + second)
            assert run.leader.load.changed_at == now, "the second report said nothing new"
            run.stirred(now)
            assert run.look_at <= now + topics.LOOK_EVERY
            assert run.look_after(now) == now + topics.LOOK_EVERY
            assert run.look_after(now + topics.RESTS_AFTER) == now + topics.RESTS_AFTER + topics.LOOK_AT_REST

    asyncio.run(main())


def test_the_work_of_brokers_is_counted_as_layouts_change() -> None:
    async def main() -> None:
        leader = started()
        loop = leader.loop

        def counted() -> bool:
            work = work_of(loop.layouts().values())
            return {name: view.segments for name, view in loop.views().items() if view.segments} == dict(work)

        async with leading(leader):
            run = await at_rest(leader)
            assert counted() and any(view.segments for view in loop.views().values())
            leader.world.wish(TOPIC, min_segments=6)
            await until(lambda: run.layout is not None and len(run.layout.segments) == 6 and counted())
            del leader.world.topics[TOPIC]
            await until(lambda: not any(view.segments for view in loop.views().values()))

    asyncio.run(main())
