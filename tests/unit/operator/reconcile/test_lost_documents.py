"""A topic whose documents were deleted by mistake is never taken for a new one, and is led again when they are back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.model.entities import Column, Topic, TopicSpec
from smq_proto.v1 import admin_pb2
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.layouts import read_layout
from smq_storage.catalog.topics import read_current, read_topic
from smq_storage.object_store.store import Store, open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import now as virtual_now
from support.virtual_time import virtual_time
from support.waiting import wait_until

NAME = "default/t"


class OneTopic:
    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        self.platform = FakePlatform(1)
        self.platform.add_topic(NAME, replicas=1)
        self.fleet = self.new_fleet()

    def new_fleet(self) -> FakeFleet:
        fleet = FakeFleet(self.store)
        fleet.add("b0")
        return fleet

    def leader(self) -> LeaderInMemory:
        return LeaderInMemory(self.platform, self.fleet, self.store)

    async def create(self) -> str:
        """Returns the topic's uid. All processes end then, so that only the filer knows of the topic."""
        leader = self.leader()
        async with running_leader(leader):
            await wait_until(lambda: NAME in leader.topics and leader.topics[NAME].is_stable and leader.tasks.idle)
        self.fleet = self.new_fleet()
        current = read_current(self.store, NAME)
        assert current is not None
        return current[0]


@pytest.mark.parametrize("kind", ["layout", "current", "spec", "index"])
@virtual_time
async def test_a_topic_that_has_lost_a_document_is_not_new(kind: str):
    it = OneTopic()
    uid = await it.create()
    path = {
        "layout": paths.layout(NAME, uid),
        "current": paths.current(NAME),
        "spec": paths.topic_json(NAME, uid),
        "index": paths.index_page(NAME, uid, 0),
    }[kind]
    if kind == "index":  # one segment has left the layout
        layout = it.store.get(paths.layout(NAME, uid))
        it.store.put(paths.layout(NAME, uid), bytes(layout.data).replace(b'"next_number":1', b'"next_number":2'))
    content = bytes(it.store.get(path).data)
    it.store.delete(path)
    leader = it.leader()
    async with running_leader(leader):
        await wait_until(lambda: NAME in leader.topics and leader.topics[NAME].unreadable is not None)
        ready = leader.condition(NAME, "Ready")
        assert (ready.status, ready.reason) == ("Unknown", "DocumentUnreadable")
        assert f"{path} is missing, although the topic is not new" in ready.message
        assert not any(found.path == path for found in it.store.list(""))
        it.store.put(path, content)
        await wait_until(lambda: leader.topics[NAME].is_stable)
        topic = leader.topics[NAME].topic
        assert topic is not None and topic.uid == uid and not leader.tasks.problems.all()


@virtual_time
async def test_a_topic_whose_folder_was_deleted_is_not_new_while_brokers_host_it():
    it = OneTopic()
    leader = it.leader()
    async with running_leader(leader):
        await wait_until(lambda: NAME in leader.topics and leader.topics[NAME].is_stable and leader.tasks.idle)
    current = read_current(it.store, NAME)
    assert current is not None
    for found in list(it.store.list(paths.topic_folder(NAME, current[0]))):
        it.store.delete(found.path)
    later = it.leader()
    async with running_leader(later):
        await wait_until(lambda: NAME in later.topics and later.topics[NAME].unreadable is not None)
        assert "broker b0 hosts segments of it" in later.condition(NAME, "Ready").message
        assert later.registry.host_of("another uid") == "", "it hosts segments of this topic only"


@virtual_time
async def test_the_first_page_of_the_index_is_created_with_the_layout():
    it = OneTopic()
    uid = await it.create()
    index = sealed_index.load(it.store, NAME, uid)
    assert index.exists and not index.entries
    it.store.delete(paths.index_page(NAME, uid, 0))  # the leader before ended between the two writes
    leader = it.leader()
    async with running_leader(leader):
        await wait_until(lambda: sealed_index.load(it.store, NAME, uid).exists)


def delete_documents(it: OneTopic, uid: str, *kinds: str) -> None:
    for kind in kinds:
        it.store.delete(
            {"layout": paths.layout(NAME, uid), "current": paths.current(NAME), "spec": paths.topic_json(NAME, uid)}[
                kind
            ]
        )


async def recover(leader: LeaderInMemory, **options: bool) -> admin_pb2.RecoverTopicReply:
    await wait_until(lambda: leader.sync._warm_up.over and bool(leader.registry.alive(virtual_now())))
    reply = await leader.call("RecoverTopic", admin_pb2.RecoverTopicRequest(topic=NAME, **options))
    assert isinstance(reply, admin_pb2.RecoverTopicReply)
    return reply


def rows_of(store: Store, uid: str) -> dict[str, int]:
    """How many messages the sealed segments have, by name."""
    return {entry.name: entry.end for entry in sealed_index.read(store, NAME, uid)}


@pytest.mark.parametrize(
    "kinds",
    [("layout",), ("current",), ("spec",), ("layout", "current"), ("spec", "layout", "current")],
    ids=["layout", "uid", "spec", "layout and uid", "all"],
)
@virtual_time
async def test_a_lost_document_is_rebuilt_with_what_journals_hold(kinds: tuple[str, ...]):
    it = OneTopic()
    leader = it.leader()
    async with running_leader(leader):
        await wait_until(lambda: NAME in leader.topics and leader.topics[NAME].is_stable and leader.tasks.idle)
        topic, layout = leader.topics[NAME].topic, leader.topics[NAME].layout
        assert topic is not None and layout is not None
        it.fleet.write(topic.uid, layout.segments[0], 7)
        spec = bytes(it.store.get(paths.topic_json(NAME, topic.uid)).data)
    it.fleet.restart(next(iter(it.fleet.brokers.values())))
    delete_documents(it, topic.uid, *kinds)
    later = it.leader()
    async with running_leader(later):
        await wait_until(lambda: NAME in later.topics and later.topics[NAME].unreadable is not None)
        assert "`smq topic recover t`" in later.condition(NAME, "Ready").message
        planned = await recover(later, preview=True)
        assert len(planned.writes) == len(kinds) and not planned.unknown
        assert later.topics[NAME].unreadable is not None, "a preview changes nothing"
        done = await recover(later)
        assert done.writes == planned.writes or "layout" in kinds
        await wait_until(lambda: later.topics[NAME].is_stable and later.tasks.idle)
        await wait_until(lambda: rows_of(it.store, topic.uid) == {layout.segments[0].name: 7})
        assert not later.topics[NAME].losses() and not later.tasks.problems.all()
        assert bytes(it.store.get(paths.topic_json(NAME, topic.uid)).data) == spec
        with pytest.raises(RpcAborted, match="nothing was changed"):
            await recover(later)


@virtual_time
async def test_a_recover_that_may_lose_messages_needs_consent():
    it = OneTopic()
    uid = await it.create()
    delete_documents(it, uid, "layout")
    it.store.put(paths.group(NAME, uid, "g"), b'{"generation":1,"positions":{"t-0-16-0":3}}')
    leader = it.leader()
    async with running_leader(leader):
        await wait_until(lambda: NAME in leader.topics and leader.topics[NAME].unreadable is not None)
        with pytest.raises(RpcAborted, match="--accept-loss"):
            await recover(leader)
        assert not any(found.path == paths.layout(NAME, uid) for found in it.store.list(""))
        await recover(leader, accept_loss=True)
        await wait_until(lambda: leader.topics[NAME].is_stable and leader.tasks.idle)
        await wait_until(lambda: rows_of(it.store, uid) == {"t-0-16-0": 0})
        assert leader.topics[NAME].losses()["t-0-16-0"].stop == 3, "the group has read three messages of it"


@virtual_time
async def test_a_spec_that_no_broker_knows_is_not_made_up():
    it = OneTopic()
    uid = await it.create()
    delete_documents(it, uid, "spec")
    leader = it.leader()
    async with running_leader(leader):
        await wait_until(lambda: NAME in leader.topics and leader.topics[NAME].unreadable is not None)
        with pytest.raises(RpcAborted, match="no broker has a segment with the topic's first columns"):
            await recover(leader, accept_loss=True)
        assert not any(found.path == paths.topic_json(NAME, uid) for found in it.store.list(""))


@virtual_time
async def test_later_columns_are_not_taken_for_the_first_ones():
    it = OneTopic()
    it.platform.add_topic(NAME, replicas=1, schema=(Column("n", "int64"),))
    uid = await it.create()
    delete_documents(it, uid, "spec")
    leader = it.leader()
    async with running_leader(leader):
        await wait_until(lambda: NAME in leader.topics and leader.topics[NAME].unreadable is not None)
        found = read_layout(it.store, NAME, uid)
        assert found is not None
        (broker,) = it.fleet.brokers.values()
        changed = Topic(NAME, uid, TopicSpec(partitions=16, schema=(Column("n", "int64"), Column("later", "string"))))
        broker.open(changed, replace(found[0].segments[0], schema_version=1))
        with pytest.raises(RpcAborted, match="no broker has a segment with the topic's first columns"):
            await recover(leader)


@virtual_time
async def test_a_spec_that_vanishes_under_a_leader_comes_back_from_its_memory():
    it = OneTopic()
    leader = it.leader()
    async with running_leader(leader):
        await wait_until(lambda: NAME in leader.topics and leader.topics[NAME].is_stable and leader.tasks.idle)
        topic = leader.topics[NAME].topic
        assert topic is not None
        delete_documents(it, topic.uid, "spec")
        assert "this leader has the topic's spec in memory" in (await recover(leader)).found
        assert read_topic(it.store, NAME, topic.uid) == topic


@virtual_time
async def test_a_layout_that_vanishes_under_a_leader_is_named_and_comes_back_from_its_memory():
    it = OneTopic()
    leader = it.leader()
    async with running_leader(leader):
        await wait_until(lambda: NAME in leader.topics and leader.topics[NAME].is_stable and leader.tasks.idle)
        topic, layout = leader.topics[NAME].topic, leader.topics[NAME].layout
        assert topic is not None and layout is not None
        for found in list(it.store.list(paths.topic_folder(NAME, topic.uid))):
            if not found.path.endswith("_topic.json"):
                it.store.delete(found.path)
        await wait_until(lambda: leader.condition(NAME, "Ready").reason == "DocumentUnreadable")
        assert paths.layout(NAME, topic.uid) in leader.condition(NAME, "Ready").message
        assert "this leader has the layout in memory" in (await recover(leader)).found
        await wait_until(lambda: leader.condition(NAME, "Ready").status == "True")
        after = leader.topics[NAME].layout
        assert after is not None and after.segments == layout.segments
