"""A document that cannot be read is skipped and named. It holds up nothing that it is not about."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from smq_core.errors import StoreUnavailable
from smq_core.model.entities import SECOND, Topic, TopicSpec
from smq_operator.cleanup.deleted_topics import LiveTopics, collect_deleted_topics, record_vanished_topics
from smq_operator.cleanup.document_scan import UNAVAILABLE_AFTER_US, DocumentQuarantine, DocumentScan
from smq_operator.groups.group_coordinator import REJOIN_TIME
from smq_operator.kube.desired_topics import DesiredTopics
from smq_operator.local.topic_manifests import TopicManifests
from smq_operator.metrics import Metrics
from smq_operator.platform_port import DesiredTopic
from smq_operator.reconcile.topics.adoption import adopt
from smq_operator.runtime.problems import LeaderProblems
from smq_proto.v1 import admin_pb2, brokers_pb2, groups_pb2
from smq_storage.catalog import group_positions, paths
from smq_storage.catalog.deleted_topics import DeletedTopic, list_deleted_topics, write_deleted_topic
from smq_storage.catalog.group_positions import CommittedPositions
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store
from support.data.clocks import leader_at
from support.in_memory.brokers import FakeBroker, FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

DAMAGED = b'{"topic": "default/t", "uid'
RETRY_POLICY = RetryPolicy(2.0)
NOBODY = LiveTopics((), (), (), complete=True)


class TwoTopics:
    """Topics a and b with one replica each, and a broker without segments."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store if store is not None else open_store("memory://")
        self.fleet, self.platform = FakeFleet(self.store), FakePlatform(3)
        for number in range(3):
            self.fleet.add(f"b{number}")
        for name in ("default/a", "default/b"):
            self.platform.add_topic(name, replicas=1)

    def leader(self) -> LeaderInMemory:
        return LeaderInMemory(self.platform, self.fleet, self.store)

    def hosts(self, topic: str) -> FakeBroker:
        return next(b for b in self.fleet.brokers.values() if any(t.name == topic for t in b.topics.values()))

    @property
    def unused(self) -> FakeBroker:
        return next(b for b in self.fleet.brokers.values() if not b.held)

    async def open(self, leader: LeaderInMemory) -> None:
        await wait_until(
            lambda: len(leader.topics) == 2 and all(m.is_stable for m in leader.topics.values()) and leader.tasks.idle
        )
        await wait_until(lambda: sum(len(b.held) for b in self.fleet.brokers.values()) == 2)


async def may_leave(leader: LeaderInMemory, broker: FakeBroker) -> bool:
    broker.draining = True
    reply = await leader.call("Report", broker.report())
    assert isinstance(reply, brokers_pb2.BrokerReportReply)
    return reply.may_leave


async def problems(leader: LeaderInMemory) -> dict[str, str]:
    listed = await leader.call("ListTopics", admin_pb2.ListTopicsRequest())
    assert isinstance(listed, admin_pb2.TopicList)
    return {problem.where: problem.message for problem in listed.problems}


def metrics(leader: LeaderInMemory) -> str:
    parts = leader.parts
    made = Metrics(
        topics=parts.topics,
        registry=parts.registry,
        decisions=parts.decisions,
        loop=parts.loop,
        filer_clock=parts.filer_clock,
        garbage_collector=parts.garbage_collector,
        file_lists=parts.file_lists,
        merger=parts.merger,
        group_lags=parts.group_lags,
        kafka_lags=parts.kafka_lag_samples,
        tasks=parts.tasks,
        clock=parts.clock,
    )
    return made.exposition()[0].decode()


@virtual_time
async def test_an_unreadable_record_of_a_deleted_topic_keeps_no_broker_from_leaving():
    topics = TwoTopics()
    topics.store.put("_deleted/damaged.json", DAMAGED)
    write_deleted_topic(topics.store, DeletedTopic("default/old", "u-old", 1, delete_data=False))
    topics.store.put("default/old/_current.json", b'{"uid": ""}')
    leader = topics.leader()
    async with running_leader(leader):
        await topics.open(leader)
        await wait_until(lambda: leader.topic_deletions.has_synced)
        await wait_until(lambda: leader.topic_deletions._synced_when_warm)
        await wait_until(lambda: leader.topic_deletions._completed == {"u-old"}, "the other one is sealed")
        assert await may_leave(leader, topics.unused)
        assert "_deleted/damaged.json" in (await problems(leader))["document _deleted/damaged.json"]
        assert 'smq_leader_unreadable_documents{kind="deleted"} 1.0' in metrics(leader)
        topics.store.delete("_deleted/damaged.json")
        await wait_until(lambda: not leader.tasks.problems.all(), "the problem is resolved")


class UnavailableDocument:
    """A store that fails to return one object."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._path = store, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, path: str) -> Any:
        if path == self._path:
            raise StoreUnavailable(f"{path}: the volume is gone")
        return self._store.get(path)


@virtual_time
async def test_a_record_that_the_filer_does_not_return_holds_brokers_up_for_a_while_only():
    topics = TwoTopics()
    topics.store.put("_deleted/gone.json", b"{}")
    store: Any = UnavailableDocument(topics.store, "_deleted/gone.json")
    leader = LeaderInMemory(topics.platform, topics.fleet, store)
    async with running_leader(leader):
        await topics.open(leader)
        assert not await may_leave(leader, topics.unused), "the filer may be back in a moment"
        began = leader.parts.clock()
        await wait_until(lambda: leader.topic_deletions._synced_when_warm)
        assert leader.parts.clock() - began >= UNAVAILABLE_AFTER_US - 5 * SECOND
        assert await may_leave(leader, topics.unused)
        assert "document _deleted/gone.json" in await problems(leader)


@virtual_time
async def test_an_unreadable_layout_holds_up_its_own_topic_only(document: str):
    topics = TwoTopics()
    first = topics.leader()
    async with running_leader(first):
        await topics.open(first)
        uid = first.topics["default/a"].topic.uid  # type: ignore[union-attr]
    path = document.format(topic="default/a", uid=uid)
    kept = bytes(topics.store.get(path).data) if _exists(topics.store, path) else None
    topics.store.put(path, DAMAGED)
    leader = topics.leader()
    async with running_leader(leader):
        await wait_until(lambda: "default/b" in leader.topics and leader.topics["default/b"].is_stable)
        await wait_until(lambda: leader.topic_deletions._synced_when_warm)
        await wait_until(lambda: leader.condition("default/a", "Ready").reason == "DocumentUnreadable")
        assert path in leader.condition("default/a", "Ready").message
        assert path in (await problems(leader))[f"document {path}"]
        assert await may_leave(leader, topics.unused)
        assert not await may_leave(leader, topics.hosts("default/a")), "nobody knows what it must still hold"
        if kept is None:
            topics.store.delete(path)
        else:
            topics.store.put(path, kept)
        await wait_until(lambda: leader.topics["default/a"].layout is not None, what="it is led again")
        assert not await problems(leader)


@pytest.fixture(params=["{topic}/{uid}/_layout.json", "{topic}/{uid}/_index/00000000.json", "{topic}/_current.json"])
def document(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _exists(store: Store, path: str) -> bool:
    return any(found.path == path for found in store.list(path.rpartition("/")[0]))


def test_the_data_of_the_other_deleted_topics_is_deleted() -> None:
    store, scan = open_store("memory://"), DocumentScan()
    store.put("_deleted/a.json", DAMAGED)
    store.put("_deleted/z.json", DAMAGED)
    write_deleted_topic(store, DeletedTopic("default/old", "u", 1, delete_data=True))
    store.put("default/old/u/_topic.json", b"{}")
    (done,) = collect_deleted_topics(store, NOBODY, 1, leader_at(100), RETRY_POLICY, set(), scan)
    assert done.uid == "u"
    assert sorted(scan.unreadable) == ["_deleted/a.json", "_deleted/z.json"]
    assert sorted(list_deleted_topics(store)) == ["a", "u", "z"], "they are left in place"


def test_other_vanished_topics_are_found() -> None:
    store, scan = open_store("memory://"), DocumentScan()
    for name in ("a", "m", "z"):
        adopt(store, DesiredTopic(name=f"default/{name}", spec=TopicSpec()), RETRY_POLICY, 0, "here")
    store.put("default/a/_current.json", DAMAGED)
    assert record_vanished_topics(store, NOBODY, "here", 9, RETRY_POLICY, scan) == ["default/m", "default/z"]
    assert list(scan.unreadable) == ["default/a/_current.json"]


def test_a_topic_that_returns_needs_no_readable_record_of_its_deletion() -> None:
    store = open_store("memory://")
    topic = adopt(store, DesiredTopic(name="default/t", spec=TopicSpec()), RETRY_POLICY).topic
    store.put(paths.deleted_topic(topic.uid), DAMAGED)
    assert adopt(store, DesiredTopic(name="default/t", spec=TopicSpec()), RETRY_POLICY).topic == topic
    assert list_deleted_topics(store) == []


@virtual_time
async def test_a_group_whose_positions_cannot_be_read_keeps_segments_and_does_not_hide_the_other_groups():
    topics = TwoTopics()
    leader = topics.leader()
    async with running_leader(leader):
        await topics.open(leader)
        managed = leader.topics["default/a"]
        topic: Topic = managed.topic  # type: ignore[assignment]
        folder = paths.groups_folder(topic.name, topic.uid)
        topics.store.put(f"{folder}/bad.json", DAMAGED)
        topics.store.put(f"{folder}/.good.json.tmp", b"not a group")
        topics.store.put(f"{folder}/notes", b"not a group")
        committed = CommittedPositions(generation=1, positions={"s": 7}, writer="w", last_active_at=5)
        group_positions.put_positions(topics.store, topic.name, topic.uid, "good", committed, None, RETRY_POLICY)

        states = {state.name: state for state in await leader.groups.states(managed, topic)}

        assert sorted(states) == ["bad", "good"]
        assert states["good"].positions == {"s": 7}
        assert (states["bad"].positions, states["bad"].last_active_at) == ({}, None), (
            "an active group that read nothing"
        )
        assert f"document {folder}/bad.json" in await problems(leader)
        listed = await leader.call("ListGroups", groups_pb2.ListGroupsRequest(topic="a"))
        assert isinstance(listed, groups_pb2.GroupList)
        assert [group.name for group in listed.groups] == ["bad", "good"]


@virtual_time
async def test_a_new_leader_takes_no_group_for_abandoned_before_its_members_could_call():
    topics = TwoTopics()
    leader = topics.leader()
    async with running_leader(leader):
        await topics.open(leader)
        managed = leader.topics["default/a"]
        topic: Topic = managed.topic  # type: ignore[assignment]
        committed = CommittedPositions(generation=1, positions={"s": 7}, writer="w", last_active_at=5)
        group_positions.put_positions(topics.store, topic.name, topic.uid, "g", committed, None, RETRY_POLICY)

        async def last_active() -> int | None:
            return (await leader.groups.states(managed, topic))[0].last_active_at

        assert await last_active() is None, "a member of it may be looking for this leader"
        await asyncio.sleep(REJOIN_TIME / SECOND)
        assert await last_active() == 5


@virtual_time
async def test_no_topic_is_deleted_before_the_desired_topics_are_known():
    topics = TwoTopics()
    leader = topics.leader()
    assert not leader.garbage_collector._deleted._live_topics().complete
    async with running_leader(leader):
        await topics.open(leader)
        assert leader.garbage_collector._deleted._live_topics().complete


def test_a_document_that_is_read_again_is_no_problem_any_more() -> None:
    problems_, now = LeaderProblems(), [0]
    quarantine = DocumentQuarantine(problems_, lambda: now[0], "nothing happens")
    assert quarantine.update(DocumentScan(unreadable={"d/x.json": "damaged"}))
    assert problems_.unreadable_documents() == ["d/x.json"]
    assert not quarantine.update(DocumentScan(unavailable={"d/y.json": "away"}))
    assert problems_.unreadable_documents() == []
    now[0] = UNAVAILABLE_AFTER_US
    assert quarantine.update(DocumentScan(unavailable={"d/y.json": "away"}))
    assert quarantine.update(DocumentScan())
    assert problems_.all() == []


def test_a_topic_resource_that_breaks_the_parser_affects_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = DesiredTopics()
    broken: dict[str, Any] = {
        "metadata": {"name": "bad", "namespace": "n", "uid": "u"},
        "spec": {"partitions": object()},
    }
    topics.update(("n", "bad"), broken)
    topics.update(("n", "good"), replace_name(broken, "good") | {"spec": {}})
    assert list(topics.all()) == ["n/good"]
    assert [problem.where for problem in topics.problems()] == ["topic n/bad"]


def replace_name(resource: dict[str, Any], name: str) -> dict[str, Any]:
    return {**resource, "apiVersion": "seaweedmq.io/v1alpha1", "kind": "Topic"} | {
        "metadata": {**resource["metadata"], "name": name}
    }


def test_a_manifest_file_that_breaks_the_parser_affects_no_other(tmp_path: Path) -> None:
    manifests = TopicManifests(tmp_path, lambda: 0)
    (tmp_path / "bad.yaml").write_text("[" * 20_000)
    good = "apiVersion: seaweedmq.io/v1alpha1\nkind: Topic\nmetadata: {name: good}\nspec: {}\n"
    (tmp_path / "good.yaml").write_text(good)
    manifests.scan()
    assert list(manifests.desired_topics()) == ["default/good"]
    assert [problem.where for problem in manifests.problems()] == ["bad.yaml"]
