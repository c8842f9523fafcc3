"""Names of topics for Kafka's clients: the leader gives each of them to one topic."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from smq_proto.v1 import admin_pb2
from smq_storage.catalog.kafka_names import topic_of_kafka_name
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until


@asynccontextmanager
async def leader_of(**topics: str | None) -> AsyncIterator[tuple[LeaderInMemory, FakePlatform]]:
    """A leader with these topics, which Kafka's clients call so."""
    store, platform = open_store("memory://"), FakePlatform()
    for name, kafka in topics.items():
        platform.add_topic(name.replace("__", "/"), kafka_name=kafka)
    fleet = FakeFleet(store)
    for number in range(3):
        fleet.add(f"b{number}")
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: leader.topics and all(it.topic for it in leader.topics.values()))
        yield leader, platform


async def apply(leader: LeaderInMemory, name: str, *, must_be_new: bool = False, **spec: Any) -> None:
    body = {"apiVersion": "seaweedmq.io/v1alpha1", "kind": "Topic", "metadata": {"name": name}}
    manifest = json.dumps(body | {"spec": {"partitions": 16, **spec}})
    await leader.call("ApplyTopic", admin_pb2.ApplyTopicRequest(manifest=manifest, must_be_new=must_be_new))


@virtual_time
async def test_a_topic_that_must_be_new_changes_no_other() -> None:
    async with leader_of(default__t=None) as (leader, platform):
        before = platform.topics["default/t"]
        with pytest.raises(RpcAborted, match="is there already"):
            await apply(leader, "t", must_be_new=True, replicas=3)
        assert platform.topics["default/t"] == before
        await apply(leader, "u", must_be_new=True)
        assert "default/u" in platform.topics


@virtual_time
@pytest.mark.parametrize("name", ["Order_Events", "team-a.orders"])
async def test_a_name_is_that_of_one_topic(name: str) -> None:
    async with leader_of(default__t="Order_Events", **{"team-a__orders": None}) as (leader, platform):
        with pytest.raises(RpcAborted, match="another name, or delete that topic"):
            await apply(leader, "u", kafka={"name": name})
        assert "default/u" not in platform.topics
        await apply(leader, "t", kafka={"name": "Order_Events"})
        await apply(leader, "u", kafka={"name": "Other"})
        assert topic_of_kafka_name(leader.store, "Other") == "default/u"


@virtual_time
async def test_a_resource_that_claims_the_name_of_another_topic_says_so() -> None:
    async with leader_of(default__t="N_1") as (leader, platform):
        platform.add_topic("default/u", kafka_name="N_1")
        leader.loop.platform_changed()
        await wait_until(lambda: "default/u" in leader.topics and leader.topics["default/u"].rejection)
        assert "call the topic default/t N_1" in str(leader.topics["default/u"].rejection)
        assert topic_of_kafka_name(leader.store, "N_1") == "default/t"
