"""What a leader reports before it has read its state, and what it requests from brokers of an earlier leader."""

from __future__ import annotations

import pytest

from smq_core.errors import Unavailable, UnknownTopic
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until


def test_a_new_leader_does_not_deny_what_it_has_not_read() -> None:
    store = open_store("memory://")
    platform = FakePlatform()
    leader = LeaderInMemory(platform, FakeFleet(store), store)
    with pytest.raises(Unavailable, match="still loading its topics"):
        leader.topics.topic("t")
    leader.sync.sync()
    with pytest.raises(UnknownTopic, match="there is no topic default/t"):
        leader.topics.topic("t")


@virtual_time
async def test_a_new_leader_opens_nothing_that_brokers_hold_already() -> None:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for number in range(3):
        fleet.add(f"b{number}")
    platform.add_topic("default/t", min_segments=4)
    first, second = (LeaderInMemory(platform, fleet, store) for _ in range(2))

    def all_open(leader: LeaderInMemory) -> bool:
        managed = leader.topics.get("default/t")
        known = managed.reconciler if managed is not None else None
        segments = known.layout.segments if known is not None and known.layout is not None else ()
        return bool(segments) and all(known.has_opened(s.name, r.incarnation) for s in segments for r in s.replicas)

    async with running_leader(first):
        await wait_until(lambda: all_open(first))
    assert fleet.calls == 8, "4 segments at 2 brokers"
    await second.report_all()  # their reports come before the layout is read
    async with running_leader(second):
        await wait_until(lambda: all_open(second))
    assert fleet.calls == 8, "the reports say it"
