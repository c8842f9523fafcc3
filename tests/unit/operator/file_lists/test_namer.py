"""The background pass of a leader over its topics: what it names, counts and reports. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from smq_core.file_lists.file_list import FileList
from smq_core.model.entities import SealedSegment
from smq_operator.file_lists.namer import FileListNamer
from smq_operator.platform_port import DesiredTopic
from smq_operator.reconcile.topics.index_copy import IndexCopy
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.store_pool import StorePool
from smq_operator.runtime.task_runner import TaskRunner
from smq_proto.v1 import admin_pb2
from smq_storage.catalog import paths, sealed_index
from smq_storage.object_store.store import Store, open_store
from smq_storage.tables.file_lists import read_file_list, write_file_list
from support.data.sealed_topic import END, make_topic, sealed_entry, segment_name, write_segment
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import now, virtual_time
from support.waiting import wait_until

TOPIC, NAME = "default/t", "t-0-16-0"


class OneTopic:
    """A topic whose first segment, an empty one, is sealed by ``roll``. Its brokers write no file lists."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        self.fleet, self.platform = FakeFleet(self.store), FakePlatform(2)
        for name in ("a", "b"):
            self.fleet.add(name)
        self.platform.add_topic(TOPIC)

    def leader(self) -> LeaderInMemory:
        return LeaderInMemory(self.platform, self.fleet, self.store)

    async def roll(self, leader: LeaderInMemory) -> None:
        await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].is_stable, what="the topic is open")
        await leader.call("ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic="t", action="ROLL", segments=[NAME]))

    def uid(self, leader: LeaderInMemory) -> str:
        topic = leader.topics[TOPIC].topic
        assert topic is not None
        return topic.uid

    def entry(self, uid: str) -> SealedSegment:
        return next(it for it in sealed_index.read(self.store, TOPIC, uid) if it.name == NAME)


def named(leader: LeaderInMemory) -> str:
    """The file list that the index names, as this leader has read it."""
    entry = leader.topics[TOPIC].index.sealed.get(NAME) if TOPIC in leader.topics else None
    return entry.file_list if entry is not None else ""


async def problems(leader: LeaderInMemory) -> dict[str, str]:
    listed = await leader.call("ListTopics", admin_pb2.ListTopicsRequest())
    assert isinstance(listed, admin_pb2.TopicList)
    return {problem.where: problem.message for problem in listed.problems}


@virtual_time
async def test_a_segment_without_a_file_list_gets_one_from_the_leader() -> None:
    topic = OneTopic()
    leader = topic.leader()
    async with running_leader(leader):
        await topic.roll(leader)
        await wait_until(lambda: named(leader), what="the leader names a file list")
        uid, version_0 = topic.uid(leader), paths.file_list_name(NAME, 0)
        assert named(leader) == topic.entry(uid).file_list == version_0
        assert read_file_list(topic.store, TOPIC, uid, version_0) == FileList(segment=NAME, end=0)
        assert leader.parts.file_lists.named == {"leader": 1}
        assert not leader.parts.file_lists.failures


@virtual_time
async def test_a_later_version_that_cannot_be_read_is_a_problem_until_it_is_restored() -> None:
    topic = OneTopic()
    leader = topic.leader()
    async with running_leader(leader):
        await topic.roll(leader)
        await wait_until(lambda: named(leader), what="version 0 is named")
        uid = topic.uid(leader)
    later = replace(FileList(segment=NAME, end=0), version=1, nonce="n")
    name = write_file_list(topic.store, TOPIC, uid, later)
    assert sealed_index.name_file_list(topic.store, TOPIC, uid, NAME, paths.file_list_name(NAME, 0), name)
    path = paths.file_list(TOPIC, uid, name)
    data = bytes(topic.store.get(path).data)
    topic.store.put(path, b"{")
    leader = topic.leader()
    where = f"document {path}"
    async with running_leader(leader):
        await wait_until(lambda: leader.tasks.problems.unreadable_documents(), what="the problem is reported")
        assert "delete it: then readers walk the chunk chain" in (await problems(leader))[where]
        assert named(leader) == name, "it may list other files than the chain has"
        topic.store.put(path, data)
        await wait_until(lambda: not leader.tasks.problems.unreadable_documents(), what="the problem is resolved")
        assert where not in await problems(leader)


@virtual_time
async def test_a_segment_that_is_sealed_during_a_pass_gets_a_file_list_too() -> None:
    store = open_store("memory://")
    topic = make_topic(store, 1)
    managed = ManagedTopic(DesiredTopic(name=topic.name, spec=topic.spec), topic, index=IndexCopy(is_read=True))
    managed.index.merge(sealed_index.load(store, topic.name, topic.uid))

    class SealsMeanwhile(StorePool):
        """Another segment is sealed during the pass that names the file list of the first one."""

        async def run(self, call: Callable[..., Any], *given: Any) -> Any:
            found = await super().run(call, *given)
            if found.named and len(managed.index.sealed) == 1:
                write_segment(store, topic, segment_name(1))
                sealed_index.append(store, topic.name, topic.uid, [sealed_entry(1, END)])
                managed.index.merge(sealed_index.load(store, topic.name, topic.uid))
            return found

    namer = FileListNamer(
        topics={topic.name: managed},
        store=SealsMeanwhile(store, None),
        tasks=TaskRunner(),
        clock=now,
    )
    running = asyncio.ensure_future(namer.run())
    await wait_until(lambda: namer.named.total() == 2, what="both have one")
    assert all(it.file_list for it in sealed_index.read(store, topic.name, topic.uid))
    running.cancel()
