"""The service and a change of the spec pause and resume the autoscaling of a topic."""

from __future__ import annotations

from dataclasses import replace

from smq_proto.v1 import admin_pb2
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


@virtual_time
async def test_a_topic_is_paused_and_resumed_and_says_so() -> None:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for name in "abc":
        fleet.add(name)
    platform.add_topic(TOPIC)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].layout)
        managed = leader.topics[TOPIC]
        await leader.call("PauseScaling", admin_pb2.PauseScalingRequest(topic="t", paused=True))
        assert managed.reconciler is not None and managed.reconciler.load.paused
        assert _paused(leader).status == "True"
        assert "run `smq topic resume-scaling t`" in _paused(leader).message
        listed = await leader.call("ListTopics", admin_pb2.ListTopicsRequest())
        assert isinstance(listed, admin_pb2.TopicList) and listed.topics[0].paused

        # The new minimum requires a split, which is reported and not done while autoscaling is paused.
        platform.topics[TOPIC] = replace(platform.topics[TOPIC], spec=replace(managed.desired.spec, min_segments=4))
        leader.loop.platform_changed()
        await wait_until(lambda: "a split of t-0-16-0" in _paused(leader).message)
        assert managed.layout is not None and len(managed.layout.segments) == 1

        await leader.call("PauseScaling", admin_pb2.PauseScalingRequest(topic="t", paused=False))
        await wait_until(lambda: managed.layout is not None and len(managed.layout.segments) >= 4)
        assert _paused(leader).status == "False"
        assert [d.action for d in leader.decisions.recent if d.action.endswith("-scaling")] == [
            "pause-scaling",
            "resume-scaling",
        ]


@virtual_time
async def test_a_new_leader_begins_with_the_pause() -> None:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for name in "abc":
        fleet.add(name)
    platform.add_topic(TOPIC, min_segments=1)
    platform.topics[TOPIC] = replace(platform.topics[TOPIC], paused=True)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].reconciler)
        topic_leader = leader.topics[TOPIC].reconciler
        assert topic_leader is not None and topic_leader.load.paused
        assert not [d for d in leader.decisions.recent if d.action == "pause-scaling"], "nothing has changed"


def _paused(leader: LeaderInMemory) -> admin_pb2.Condition:
    return leader.condition(TOPIC, "AutoscalingPaused")
