"""Autoscaling of a topic is paused and resumed by the service, and by whoever changes the wish."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from smq_operator.service_people import conditions
from smq_proto.v1 import leader_pb2 as lpb
from smq_storage.store import open_store
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, leading, until

TOPIC = "default/t"


def test_a_topic_is_paused_and_resumed_and_says_so() -> None:
    async def main() -> None:
        store = open_store("memory://")
        fleet, world = FakeFleet(store), FakeWorld()
        for name in "abc":
            fleet.add(name)
        world.wish(TOPIC)
        leader = LeaderInMemory(world, fleet, store)
        async with leading(leader):
            await until(lambda: TOPIC in leader.loop.topics and leader.loop.topics[TOPIC].layout)
            run = leader.loop.topics[TOPIC]
            await leader.call("PauseTopic", lpb.PauseTopicRequest(topic="t", paused=True))
            assert run.leader is not None and run.leader.paused
            (paused,) = [c for c in conditions(run) if c.type == "AutoscalingPaused"]
            assert "`smq topic resume t` ends it" in paused.message
            listed = await leader.call("ListTopics", lpb.Empty())
            assert isinstance(listed, lpb.TopicList) and listed.topics[0].paused

            # A rule that load alone would follow: what is asked for is told, not done.
            world.topics[TOPIC] = replace(world.topics[TOPIC], spec=replace(run.wish.spec, min_segments=4))
            leader.loop.world_changed()
            await until(lambda: any("a split of t-0-16-0" in c.message for c in conditions(run)))
            assert run.layout is not None and len(run.layout.segments) == 1

            await leader.call("PauseTopic", lpb.PauseTopicRequest(topic="t", paused=False))
            await until(lambda: run.layout is not None and len(run.layout.segments) >= 4)
            assert not [c for c in conditions(run) if c.type == "AutoscalingPaused"]
            assert [d.action for d in leader.loop.decisions if d.action in ("pause", "resume")] == ["pause", "resume"]

    asyncio.run(main())


def test_a_new_leader_begins_with_the_pause() -> None:
    async def main() -> None:
        store = open_store("memory://")
        fleet, world = FakeFleet(store), FakeWorld()
        for name in "abc":
            fleet.add(name)
        world.wish(TOPIC, min_segments=1)
        world.topics[TOPIC] = replace(world.topics[TOPIC], paused=True)
        leader = LeaderInMemory(world, fleet, store)
        async with leading(leader):
            await until(lambda: TOPIC in leader.loop.topics and leader.loop.topics[TOPIC].leader)
            topic_leader = leader.loop.topics[TOPIC].leader
            assert topic_leader is not None and topic_leader.paused
            assert not [d for d in leader.loop.decisions if d.action == "pause"], "nothing has changed"

    asyncio.run(main())
