"""What the leader keeps of brokers that are gone."""

from __future__ import annotations

import asyncio

import pytest

from smq_storage.store import open_store
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, leading, until


def test_no_connection_to_a_broker_that_was_replaced_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody proves its death: it is gone because a newer one reports under its name."""
    monkeypatch.setattr("smq_operator.registry.KEPT_FOR", 0)

    async def main() -> None:
        store = open_store("memory://")
        fleet, world = FakeFleet(store), FakeWorld()
        old, *others = [fleet.add(name) for name in ("b0", "b1", "b2")]
        world.wish("default/t", min_segments=4)
        leader = LeaderInMemory(world, fleet, store)

        def served_by(incarnation: str) -> bool:
            layouts = leader.loop.layouts().values()
            return incarnation in {r.incarnation for it in layouts for s in it.segments for r in s.replicas}

        async with leading(leader):
            await until(lambda: served_by(old.replica.incarnation))
            old.living = False
            new = fleet.add("b0")
            await until(lambda: old.replica.incarnation in fleet.forgotten)
            assert not served_by(old.replica.incarnation)
            assert fleet.forgotten.isdisjoint(b.replica.incarnation for b in (*others, new))

    asyncio.run(main())
