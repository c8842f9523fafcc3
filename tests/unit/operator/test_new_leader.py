"""What a leader says before it has looked at the world, and what it asks of brokers that another one led before."""

from __future__ import annotations

import asyncio

import pytest

from smq_core.errors import Unavailable, UnknownTopic
from smq_storage.store import open_store
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, leading, until


def test_a_new_leader_does_not_deny_what_it_has_not_looked_for() -> None:
    store = open_store("memory://")
    world = FakeWorld()
    loop = LeaderInMemory(world, FakeFleet(store), store).loop
    with pytest.raises(Unavailable, match="does not know its topics yet"):
        loop.topic("t")
    loop.sync_wishes()
    with pytest.raises(UnknownTopic, match="there is no topic default/t"):
        loop.topic("t")


def test_a_new_leader_opens_nothing_that_brokers_hold_already() -> None:
    async def main() -> None:
        store = open_store("memory://")
        fleet, world = FakeFleet(store), FakeWorld()
        for number in range(3):
            fleet.add(f"b{number}")
        world.wish("default/t", min_segments=4)
        first, second = (LeaderInMemory(world, fleet, store) for _ in range(2))

        def all_open(leader: LeaderInMemory) -> bool:
            run = leader.loop.topics.get("default/t")
            known = run.leader if run is not None else None
            segments = known.layout.segments if known is not None and known.layout is not None else ()
            return bool(segments) and all(known.holds(s.name, r.incarnation) for s in segments for r in s.replicas)

        async with leading(first):
            await until(lambda: all_open(first))
        assert fleet.calls == 8, "4 segments at 2 brokers"
        await second.hear()  # their reports come before the layout is read
        async with leading(second):
            await until(lambda: all_open(second))
        assert fleet.calls == 8, "the reports say it"

    asyncio.run(main())
