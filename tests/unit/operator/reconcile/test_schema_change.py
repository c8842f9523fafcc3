"""A changed spec.schema reaches the layout, the brokers and the clients, whichever leader carries it out."""

from __future__ import annotations

from dataclasses import replace

from smq_core.model.entities import Column, Layout
from smq_operator.platform_port import DesiredTopic
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import layout_from_pb, topic_from_pb
from smq_storage.catalog.topics import read_topic
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"
FIRST = (Column("flight", "string"), Column("delay", "int16"))
GATE = Column("gate", "string", nullable=True)


def started() -> LeaderInMemory:
    store = open_store("memory://")
    fleet, platform = FakeFleet(store), FakePlatform()
    for name in "abc":
        fleet.add(name)
    platform.add_topic(TOPIC, min_segments=2, schema=FIRST, key="flight")
    return LeaderInMemory(platform, fleet, store)


def successor(leader: LeaderInMemory) -> LeaderInMemory:
    return LeaderInMemory(leader.platform, leader.fleet, leader.store)


def change(leader: LeaderInMemory, *columns: Column, generation: int = 0, **spec: object) -> None:
    old = leader.platform.topics[TOPIC]
    changed = replace(old.spec, schema=columns, **spec)  # type: ignore[arg-type]
    leader.platform.topics[TOPIC] = DesiredTopic(name=TOPIC, spec=changed, generation=generation)


async def stable_layout(leader: LeaderInMemory, version: int) -> Layout:
    """The layout when all of its segments are open, with that version of the schema."""

    def found() -> Layout | None:
        layout = leader.topics[TOPIC].layout if TOPIC in leader.topics else None
        if layout is None or any(s.successors or s.schema_version != version for s in layout.segments):
            return None
        return layout if leader.topics[TOPIC].is_stable else None

    layout = await wait_until(found, what=f"every segment is open with version {version}")
    assert layout is not None
    return layout


@virtual_time
async def test_brokers_and_clients_get_the_columns_of_their_version() -> None:
    leader = started()
    async with running_leader(leader):
        await stable_layout(leader, 0)
        change(leader, *FIRST, GATE)
        layout = await stable_layout(leader, 1)
        uid = leader.topics[TOPIC].topic.uid
        opened = {
            (u, name): topic for broker in leader.fleet.brokers.values() for (u, name), topic in broker.topics.items()
        }
        versions = {name: 0 for _, name in opened} | {s.name: 1 for s in layout.segments}
        for (_, name), topic in opened.items():
            assert topic.spec.schema == (FIRST, (*FIRST, GATE))[versions[name]]
        assert {0, 1} == set(versions.values())
        reply = await leader.call("Locate", pb.LocateRequest(topic=TOPIC))
        assert isinstance(reply, pb.LocateReply) and reply.topic.schema_version == 1
        assert topic_from_pb(reply.topic).spec.schema == (*FIRST, GATE)
        assert layout_from_pb(reply.layout).schemas == layout.schemas
        stored = read_topic(leader.store, TOPIC, uid)
        assert stored is not None and stored.spec.schema == FIRST, "version 0, for whoever reads an older layout"


@virtual_time
async def test_the_next_leader_finds_the_versions_in_the_layout() -> None:
    leader = started()
    async with running_leader(leader):
        await stable_layout(leader, 0)
        change(leader, *FIRST, GATE)
        before = await stable_layout(leader, 1)
    second = successor(leader)
    async with running_leader(second):
        assert (await stable_layout(second, 1)).schemas == before.schemas
        change(second, FIRST[0], Column("delay", "int32"), GATE)
        (newest,) = (await stable_layout(second, 2)).schemas
        assert newest.columns == (FIRST[0], Column("delay", "int32"), GATE)


@virtual_time
async def test_a_dropped_name_is_refused_and_nothing_of_that_spec_is_followed() -> None:
    """The API server cannot know it, because the resource no longer has the column."""
    leader = started()
    async with running_leader(leader):
        await stable_layout(leader, 0)
        change(leader, *FIRST, GATE)
        await stable_layout(leader, 1)
        change(leader, *FIRST)
        await stable_layout(leader, 2)
        change(leader, *FIRST, GATE, flush_bytes=4096)
        await wait_until(lambda: leader.condition(TOPIC, "SpecRejected").status == "True")
        assert "'gate' was dropped before" in leader.condition(TOPIC, "SpecRejected").message
        assert leader.topics[TOPIC].topic.spec.flush_bytes != 4096
        assert (await stable_layout(leader, 2)).schemas[-1].dropped == ("gate",)
        change(leader, *FIRST, Column("gate_2", "string", nullable=True), flush_bytes=4096)
        await stable_layout(leader, 3)
        assert leader.condition(TOPIC, "SpecRejected").status == "False"
        assert leader.topics[TOPIC].topic.spec.flush_bytes == 4096


@virtual_time
async def test_a_leader_that_reads_an_older_resource_drops_no_column() -> None:
    leader = started()
    async with running_leader(leader):
        await stable_layout(leader, 0)
        change(leader, *FIRST, GATE, generation=2)
        await stable_layout(leader, 1)
    change(leader, *FIRST, generation=1)  # its cache lags behind
    second = successor(leader)
    async with running_leader(second):
        await wait_until(lambda: TOPIC in second.topics and second.topics[TOPIC].last_adopted is not None)
        assert (await stable_layout(second, 1)).schemas[-1].columns == (*FIRST, GATE)
        assert second.condition(TOPIC, "SpecRejected").status == "False"
        change(second, *FIRST, generation=3)
        assert (await stable_layout(second, 2)).schemas[-1].dropped == ("gate",)
