"""The leader keeps the story of each topic over restarts of its reconciler, and no other topic's."""

from __future__ import annotations

import pytest

from smq_proto.v1 import admin_pb2
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


async def story(leader: LeaderInMemory) -> list[str]:
    reply = await leader.call("ReadStory", admin_pb2.ReadStoryRequest(topic="t"))
    assert isinstance(reply, admin_pb2.Story)
    assert all(0 < event.at <= event.last_at and event.times for event in reply.events)
    return [event.kind for event in reply.events]


@virtual_time
async def test_a_topic_keeps_its_story_until_another_one_has_its_name() -> None:
    store = open_store("memory://")
    platform, fleet = FakePlatform(2), FakeFleet(store)
    fleet.add("b0")
    fleet.add("b1")
    platform.add_topic(TOPIC)
    leader = LeaderInMemory(platform, fleet, store)

    def is_open() -> bool:
        return TOPIC in leader.topics and leader.topics[TOPIC].next_check_after(1) > 1

    async with running_leader(leader):
        await wait_until(is_open, what="the topic is open")
        first = await story(leader)
        assert first[:3] == ["LayoutRead", "PutLayout", "LayoutWritten"] and first.count("ReplicaOpened") == 2

        leader.sync.restart(leader.topics[TOPIC], "broken by the test")
        await wait_until(is_open, what="the topic is reconciled again")
        again = await story(leader)
        assert again[: len(first)] == first and len(again) > len(first), "the reasons of the restart are in it"

        await leader.call("DeleteTopic", admin_pb2.DeleteTopicRequest(topic="t"))
        with pytest.raises(RpcAborted, match="there is no topic default/t"):
            await story(leader)
        platform.add_topic(TOPIC, min_segments=2)
        await wait_until(is_open, what="a new topic of that name is open")
        new = await story(leader)
        assert new[:3] == first[:3] and new.count("ReplicaOpened") == 4
