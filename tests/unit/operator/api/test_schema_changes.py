"""AlterTopic: what it checks, what it writes, and when it returns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from smq_core.model.entities import Column, TopicSchema
from smq_proto.v1 import leader_pb2 as lpb
from smq_proto.wire import columns_to_pb, schema_from_pb
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"
ID, NOTE = Column("id", "int32"), Column("note", "string", nullable=True)
WIDE = Column("id", "int64")


@asynccontextmanager
async def leader_of(*columns: Column) -> AsyncIterator[tuple[LeaderInMemory, FakePlatform]]:
    """A leader with one topic of these columns, which has its first layout."""
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for name in "abc":
        fleet.add(name)
    platform.add_topic(TOPIC, schema=columns)
    leader = LeaderInMemory(platform, fleet, store)
    async with running_leader(leader):
        await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].layout)
        yield leader, platform


async def alter(leader: LeaderInMemory, version: int, *columns: Column, preview: bool = False) -> TopicSchema:
    request = lpb.AlterTopicRequest(topic="t", columns=columns_to_pb(columns), schema_version=version, preview=preview)
    reply = await leader.call("AlterTopic", request)
    assert isinstance(reply, lpb.AlterTopicReply)
    return schema_from_pb(reply.schema)


@virtual_time
async def test_the_layout_has_the_new_version_when_it_returns() -> None:
    async with leader_of(ID, NOTE) as (leader, platform):
        assert await alter(leader, 0, WIDE) == TopicSchema(1, (WIDE,), ("note",))
        layout = leader.topics[TOPIC].layout
        assert layout is not None and layout.schemas[-1] == TopicSchema(1, (WIDE,), ("note",))
        assert {s.schema_version for s in layout.writable_segments} == {1}
        assert platform.topics[TOPIC].spec.schema == (WIDE,)


@virtual_time
async def test_a_preview_and_the_same_columns_change_nothing() -> None:
    async with leader_of(ID, NOTE) as (leader, platform):
        assert (await alter(leader, 0, WIDE, NOTE, preview=True)).version == 1
        assert (await alter(leader, 0, NOTE, ID)).version == 0
        assert platform.topics[TOPIC].spec.schema == (ID, NOTE)


@virtual_time
async def test_what_is_not_allowed_is_refused_by_column_and_changes_nothing() -> None:
    async with leader_of(ID, NOTE) as (leader, platform):
        with pytest.raises(RpcAborted) as caught:
            await alter(leader, 0, Column("id", "string"), Column("gate", "uint8"))
        assert "'id' cannot change from int32 to string" in str(caught.value)
        assert "'gate' is new" in str(caught.value)
        with pytest.raises(RpcAborted, match="complex64"):
            await alter(leader, 0, ID, NOTE, Column("gate", "complex64", nullable=True))
        with pytest.raises(RpcAborted, match="schema version 0, not 3"):
            await alter(leader, 3, WIDE, NOTE)
        assert platform.topics[TOPIC].spec.schema == (ID, NOTE)


@virtual_time
async def test_a_topic_without_a_schema_stays_without() -> None:
    async with leader_of() as (leader, _):
        with pytest.raises(RpcAborted, match="was created without a schema"):
            await alter(leader, 0, ID)
