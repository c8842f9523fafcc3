"""What the leader keeps of brokers that are gone."""

from __future__ import annotations

import pytest

from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until


@virtual_time
async def test_no_connection_to_a_broker_that_was_replaced_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The platform has no termination proof: it is gone because a newer incarnation reports under its name."""
    monkeypatch.setattr("smq_operator.brokers.registry.GONE_RETENTION_US", 0)

    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    old, *others = [fleet.add(name) for name in ("b0", "b1", "b2")]
    platform.add_topic("default/t", min_segments=4)
    leader = LeaderInMemory(platform, fleet, store)

    def served_by(incarnation: str) -> bool:
        layouts = leader.topics.layouts().values()
        return incarnation in {r.incarnation for it in layouts for s in it.segments for r in s.replicas}

    async with running_leader(leader):
        await wait_until(lambda: served_by(old.replica.incarnation))
        old.living = False
        new = fleet.add("b0")
        await wait_until(lambda: old.replica.incarnation in fleet.forgotten)
        assert not served_by(old.replica.incarnation)
        assert fleet.forgotten.isdisjoint(b.replica.incarnation for b in (*others, new))
