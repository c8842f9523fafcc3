"""A segment that a broker fenced by itself is sealed and continues elsewhere."""

from __future__ import annotations

import pytest

from smq_core.model.entities import Layout, Phase
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


@pytest.mark.parametrize("replica", [0, 1], ids=["at the primary", "at a follower"])
@virtual_time
async def test_a_fenced_segment_gets_a_successor_on_other_brokers(replica: int) -> None:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform(3)
    for number in range(3):
        fleet.add(f"b{number}")
    platform.add_topic(TOPIC, min_segments=1)
    leader = LeaderInMemory(platform, fleet, store)

    def layout() -> Layout | None:
        managed = leader.topics.get(TOPIC)
        return managed.layout if managed is not None else None

    def all_open() -> bool:
        found = layout()
        return found is not None and all(s.phase is Phase.OPEN and not s.successors for s in found.segments)

    async with running_leader(leader):
        await wait_until(all_open, what="the topic is open")
        before = layout()
        assert before is not None
        (segment,) = before.segments
        broken = segment.replicas[replica]
        fleet.brokers[broken.incarnation].held[before.uid, segment.name].fence()

        def moved() -> bool:
            found = layout()
            return found is not None and all_open() and segment.name not in found

        await wait_until(moved, what="its successor is open")
        after = layout()
        assert after is not None and broken not in after.segments[0].replicas
