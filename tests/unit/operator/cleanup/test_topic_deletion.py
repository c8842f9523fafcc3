"""A deleted topic is sealed before its deletion is answered, whatever dies meanwhile, and by whoever leads then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from smq_core.errors import Conflict, StoreUnavailable
from smq_core.model.entities import TopicSpec
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_operator.api import admin
from smq_operator.brokers import sealing
from smq_operator.cleanup import deleted_topics_collector, topic_deletion
from smq_operator.cleanup.deleted_topics import LiveTopics, record_vanished_topics
from smq_operator.cleanup.document_scan import DocumentScan
from smq_operator.platform_port import DesiredTopic
from smq_operator.reconcile.topics import adoption
from smq_operator.reconcile.topics.adoption import adopt, record_deletion
from smq_proto.v1 import admin_pb2, brokers_pb2
from smq_storage.catalog import layouts
from smq_storage.catalog.deleted_topics import DeletedTopic, read_deleted_topic, write_deleted_topic
from smq_storage.catalog.topics import read_current
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.sim.engine.virtual_threads import VirtualEvent
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"
DELETE = admin_pb2.DeleteTopicRequest(topic="t")


class DeletableTopic:
    """Three brokers and a topic of two segments, which a first leader has opened."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        self.platform = FakePlatform()
        for number in range(3):
            self.fleet.add(f"b{number}")
        self.platform.add_topic(TOPIC, min_segments=2)

    def leader(self) -> LeaderInMemory:
        return LeaderInMemory(self.platform, self.fleet, self.store)

    async def open(self, leader: LeaderInMemory) -> None:
        def is_finished() -> bool:
            managed = leader.topics.get(TOPIC)
            return managed is not None and managed.layout is not None and len(self.hosted) == 4 and leader.tasks.idle

        await wait_until(is_finished, what="two segments on two brokers each")

    @property
    def hosted(self) -> list[SegmentReplica]:
        return [machine for broker in self.fleet.brokers.values() for machine in broker.held.values()]

    @property
    def uid(self) -> str:
        (uid,) = {key[0] for broker in self.fleet.brokers.values() for key in broker.held}
        return uid

    def appending(self) -> list[str]:
        """The segments that can still ack: no replica of them is fenced."""
        fenced = {m.config.segment for m in self.hosted if m.state in (ReplicaState.FENCED, ReplicaState.SEALED)}
        return sorted({m.config.segment for m in self.hosted} - fenced)

    def is_noted(self) -> bool:
        deleted_topic = read_deleted_topic(self.store, self.uid)
        return deleted_topic is not None and deleted_topic.sealed


@virtual_time
async def test_the_answer_comes_when_nothing_of_the_topic_is_acked_any_more():
    deletable_topic = DeletableTopic()
    leader = deletable_topic.leader()
    async with running_leader(leader):
        await deletable_topic.open(leader)
        assert len(deletable_topic.appending()) == 2
        await leader.call("DeleteTopic", DELETE)
        assert not deletable_topic.appending()
        assert deletable_topic.is_noted()
        await wait_until(
            lambda: all(m.state is ReplicaState.SEALED for m in deletable_topic.hosted), what="all replicas are sealed"
        )


@virtual_time
async def test_a_deleted_resource_is_sealed_too():
    deletable_topic = DeletableTopic()
    deletable_topic.platform.topics[TOPIC] = replace(deletable_topic.platform.topics[TOPIC], uid="of-the-resource")
    leader = deletable_topic.leader()
    async with running_leader(leader):
        await deletable_topic.open(leader)
        del deletable_topic.platform.topics[TOPIC]
        leader.loop.platform_changed()
        await wait_until(lambda: not deletable_topic.appending() and deletable_topic.is_noted())
        current = read_current(deletable_topic.store, TOPIC)
        assert current is not None and current[0] == "", "brokers answer that it is deleted"


@virtual_time
async def test_a_topic_that_seems_to_live_again_is_not_noted_as_sealed(monkeypatch: pytest.MonkeyPatch):
    """A list of resources may be older than the deletion."""
    deletable_topic = DeletableTopic()
    resource = replace(deletable_topic.platform.topics[TOPIC], uid="of-the-resource")
    deletable_topic.platform.topics[TOPIC] = resource
    leader = deletable_topic.leader()
    async with running_leader(leader):
        await deletable_topic.open(leader)
        for broker in deletable_topic.fleet.brokers.values():
            broker.answers = False
        del deletable_topic.platform.topics[TOPIC]
        leader.loop.platform_changed()
        uid = deletable_topic.uid
        await wait_until(lambda: read_deleted_topic(deletable_topic.store, uid) is not None)
        await wait_until(lambda: leader.topic_deletions.blocks_leaving(deletable_topic.hosted[0].config.incarnation))

        with monkeypatch.context() as unread:
            unread.setattr(adoption, "adopt", raise_unavailable)
            deletable_topic.platform.topics[TOPIC] = resource
            leader.loop.platform_changed()
            await wait_until(lambda: leader.topic_deletions.uid_of(TOPIC) is None)
            assert len(deletable_topic.appending()) == 2 and not deletable_topic.is_noted()
            del deletable_topic.platform.topics[TOPIC]
            leader.loop.platform_changed()
            for broker in deletable_topic.fleet.brokers.values():
                broker.answers = True
            await wait_until(lambda: not deletable_topic.appending() and deletable_topic.is_noted())


def raise_unavailable(*args: Any) -> object:
    raise StoreUnavailable("broken by the test")


class HangingDeletion:
    """Lets ``left`` of the effects of a deletion begin. The call that begins the next one hangs for ever.

    ``answer_lost``: that one is carried out, but its answer is never heard.
    """

    def __init__(self, leader: LeaderInMemory, left: int, how: str) -> None:
        self.left, self.how, self.reached = left, how, False
        self._call, self._run = leader.fleet.call, leader.parts.store.run
        leader.topic_deletions._sealing._brokers = self  # type: ignore[assignment]
        leader.parts.store.run = self.run  # type: ignore[method-assign]

    async def _effect(self, work: Callable[..., Any], *args: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            return await work(*args, **named)
        self.reached = True
        if self.how == "answer_lost" and self.left == -1:
            await work(*args, **named)
        return await asyncio.Event().wait()

    async def call(self, *args: Any, **named: Any) -> Any:
        return await self._effect(self._call, *args, **named)

    async def run(self, call: Callable[..., Any], *args: Any) -> Any:
        deletion = (
            topic_deletion.retire,
            admin.retire,
            topic_deletion._close_layout,
            topic_deletion.mark_sealed,
            sealing.seal_from_filer,
        )
        if call in deletion:
            return await self._effect(self._run, call, *args)
        return await self._run(call, *args)


async def interrupted(left: int, how: str) -> bool:
    deletable_topic = DeletableTopic()
    first = deletable_topic.leader()
    async with running_leader(first):
        await deletable_topic.open(first)
        hanging = HangingDeletion(first, left, how)
        answer = asyncio.ensure_future(first.call("DeleteTopic", DELETE))
        await wait_until(lambda: hanging.reached or answer.done())
        await asyncio.sleep(0.05)  # whatever is still under way goes as far as it can
        done = answer.done()
        if done:
            assert not deletable_topic.appending(), "it was answered as done"
        answer.cancel()
    second = deletable_topic.leader()
    current = read_current(deletable_topic.store, TOPIC)
    deleted = current is not None and current[0] != deletable_topic.uid
    uid = deletable_topic.uid
    async with running_leader(second):
        if deleted:
            await wait_until(
                lambda: (it := read_deleted_topic(deletable_topic.store, uid)) is not None and it.sealed,
                what=f"{left} {how}",
            )
            old = [m for b in deletable_topic.fleet.brokers.values() for key, m in b.held.items() if key[0] == uid]
            open_ones = {m.config.segment for m in old} - {m.config.segment for m in old if m.outcome is not None}
            assert not open_ones
        else:
            assert TOPIC in second.platform.topics and len(deletable_topic.appending()) == 2, "nothing was deleted"
    return not done


@pytest.mark.parametrize("how", ["before", "answer_lost"])
@virtual_time
async def test_a_leader_stopped_after_any_effect_is_followed_by_one_that_finishes(how):
    cut = await asyncio.gather(*(interrupted(left, how) for left in range(14)))
    assert sum(cut) >= 6 and not cut[-1], "it was stopped everywhere, and once not at all"


@virtual_time
async def test_a_deletion_without_answers_reports_why_and_can_be_awaited_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admin, "SEAL_WAIT_SECONDS", 0.3)

    deletable_topic = DeletableTopic()
    leader = deletable_topic.leader()
    async with running_leader(leader):
        await deletable_topic.open(leader)
        for broker in deletable_topic.fleet.brokers.values():
            broker.answers = False
        for broker in leader.registry.all():
            broker.suspected = True
        for _ in range(2):
            with pytest.raises(
                RpcAborted, match=r"is deleted, but not all .* not confirmed gone .* repeat the command"
            ):
                await leader.call("DeleteTopic", DELETE)
        for incarnation, broker in deletable_topic.fleet.brokers.items():
            broker.living = False
            deletable_topic.platform.terminated[incarnation] = "killed by the test"
        monkeypatch.setattr(admin, "SEAL_WAIT_SECONDS", 8.0)
        await leader.call("DeleteTopic", DELETE)
        assert deletable_topic.is_noted()


def test_a_resource_that_vanished_without_a_leader_frees_its_name_at_once_and_a_manifest_does_not():
    store, retry_policy = open_store("memory://"), RetryPolicy(2.0)
    spec = DesiredTopic(name=TOPIC, spec=DeletableTopic().platform.topics[TOPIC].spec).spec
    given = adopt(store, DesiredTopic(name="default/given", spec=spec, uid="u-1"), retry_policy, 0, "here").topic
    made = adopt(store, DesiredTopic(name="default/made", spec=spec), retry_policy, 0, "here").topic
    record_deletion(store, given.name, given.uid, retry_policy, 5)  # the leader was stopped right behind that
    record_vanished_topics(store, LiveTopics((), (), (), complete=True), "here", 9, retry_policy, DocumentScan())
    names = [read_current(store, topic.name) for topic in (given, made)]
    assert [found and found[0] for found in names] == ["", made.uid]
    assert topic_deletion._unsealed(store, set(), DocumentScan()) == [(given.name, given.uid)]


def test_a_name_is_free_only_after_the_deletion_is_recorded():
    """A leader that is stopped between the two would leave data that nobody seals and nobody deletes."""
    store, retry_policy = open_store("memory://"), RetryPolicy(2.0)
    topic = adopt(store, DesiredTopic(name=TOPIC, spec=TopicSpec(), uid="u-1"), retry_policy, 0, "here").topic
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adoption, "record_deletion", raise_unavailable)
        with pytest.raises(StoreUnavailable):
            adoption.retire(store, TOPIC, topic.uid, retry_policy, 5)
    current = read_current(store, TOPIC)
    assert current is not None and current[0] == topic.uid
    adoption.retire(store, TOPIC, topic.uid, retry_policy, 5)
    assert read_deleted_topic(store, topic.uid) is not None


def test_records_of_earlier_versions_are_checked_once():
    store = open_store("memory://")
    write_deleted_topic(store, DeletedTopic("default/old", "u-0", 1, False, sealed=True))
    ended: set[str] = set()
    assert topic_deletion._unsealed(store, ended, DocumentScan()) == [] and ended == {"u-0"}


@virtual_time
async def test_a_pending_layout_change_does_not_land_after_deletion():
    deletable_topic = DeletableTopic()
    leader = deletable_topic.leader()
    async with running_leader(leader):
        await deletable_topic.open(leader)
        uid = deletable_topic.uid
        found = layouts.read_layout(deletable_topic.store, TOPIC, uid)
        assert found is not None
        await leader.call("DeleteTopic", DELETE)
        late = replace(found[0], version=found[0].version + 1, writer="late")
        with pytest.raises(Conflict):
            layouts.put_layout(deletable_topic.store, late, found[1], RetryPolicy(1.0))
        left = layouts.read_layout(deletable_topic.store, TOPIC, uid)
        assert left is not None and left[0].deleted


@virtual_time
async def test_a_broker_stays_until_what_it_holds_of_a_deleted_topic_is_sealed(monkeypatch: pytest.MonkeyPatch):
    deletable_topic = DeletableTopic()
    leader = deletable_topic.leader()
    with pytest.raises(RpcAborted, match="still loading the topics that are being deleted"):
        await leader.call("DeleteTopic", DELETE)
    async with running_leader(leader):
        await deletable_topic.open(leader)
        monkeypatch.setattr(admin, "SEAL_WAIT_SECONDS", 0.1)
        for broker in deletable_topic.fleet.brokers.values():
            broker.draining, broker.answers = True, False
        with pytest.raises(RpcAborted, match="not all of its segments are sealed yet"):
            await leader.call("DeleteTopic", DELETE)
        holders = {m.config.incarnation for m in deletable_topic.hosted}
        for name, broker in deletable_topic.fleet.brokers.items():
            reply = await leader.call("Report", broker.report())
            assert isinstance(reply, brokers_pb2.BrokerReportReply) and reply.may_leave == (name not in holders)
        for broker in deletable_topic.fleet.brokers.values():
            broker.answers = True
        await wait_until(deletable_topic.is_noted, what="it is sealed")
        for broker in deletable_topic.fleet.brokers.values():
            reply = await leader.call("Report", broker.report())
            assert isinstance(reply, brokers_pb2.BrokerReportReply) and reply.may_leave


@virtual_time
async def test_a_broker_stays_until_the_segments_of_a_deleted_topic_are_known(monkeypatch: pytest.MonkeyPatch):
    deletable_topic = DeletableTopic()
    leader = deletable_topic.leader()
    async with running_leader(leader):
        await deletable_topic.open(leader)
        broker = deletable_topic.fleet.brokers[deletable_topic.hosted[0].config.incarnation]
        broker.draining = True
        await wait_until(lambda: not leader.topic_deletions.blocks_leaving("nobody"), what="the leader has warmed up")
        with monkeypatch.context() as unread:
            unread.setattr(topic_deletion, "_close_layout", raise_unavailable)
            unread.setattr(admin, "SEAL_WAIT_SECONDS", 0.1)
            with pytest.raises(RpcAborted, match="broken by the test"):
                await leader.call("DeleteTopic", DELETE)
            reply = await leader.call("Report", broker.report())
            assert isinstance(reply, brokers_pb2.BrokerReportReply) and not reply.may_leave
        await wait_until(deletable_topic.is_noted, what="it is sealed")


class UnreadTopic:
    """A topic that a first leader opened, and that the next one cannot read from the filer: ``read`` says when it can.

    ``asked`` is set as soon as it tries; it fails then, or with ``hangs`` waits until it can be read.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, given: bool, hangs: bool = False) -> None:
        self.deletable_topic, self.hangs = DeletableTopic(), hangs
        if given:
            self.deletable_topic.platform.topics[TOPIC] = replace(
                self.deletable_topic.platform.topics[TOPIC], uid="of-the-resource"
            )
        self.attempted, self.read = VirtualEvent(), VirtualEvent()
        self._monkeypatch = monkeypatch

    async def next_leader(self) -> LeaderInMemory:
        first = self.leader()
        async with running_leader(first):
            await self.deletable_topic.open(first)
        self._monkeypatch.setattr(adoption, "adopt", self._adopt)
        return self.leader()

    def leader(self) -> LeaderInMemory:
        leader = self.deletable_topic.leader()
        leader.owner = "here"
        return leader

    def delete_resource(self, leader: LeaderInMemory) -> None:
        del self.deletable_topic.platform.topics[TOPIC]
        leader.loop.platform_changed()

    def _adopt(self, *args: Any) -> object:
        self.attempted.set()
        if self.hangs:
            self.read.wait()
        if not self.read.is_set():
            raise StoreUnavailable("broken by the test")
        return adopt(*args)


@virtual_time
async def test_a_topic_that_a_new_leader_has_not_read_yet_is_not_said_to_be_deleted(monkeypatch: pytest.MonkeyPatch):
    unread = UnreadTopic(monkeypatch, given=False)
    deletable_topic, leader = unread.deletable_topic, await unread.next_leader()
    async with running_leader(leader):
        await wait_until(lambda: unread.attempted.is_set() and leader.topic_deletions.has_synced)
        monkeypatch.setattr(admin, "ADOPTION_TIMEOUT_SECONDS", 0.2)
        with pytest.raises(RpcAborted, match=r"not deleted, and nothing was changed: .*broken by the test.* Try again"):
            await leader.call("DeleteTopic", DELETE)
        assert TOPIC in deletable_topic.platform.topics and len(deletable_topic.appending()) == 2
        monkeypatch.setattr(admin, "ADOPTION_TIMEOUT_SECONDS", 5.0)
        answer = asyncio.ensure_future(leader.call("DeleteTopic", DELETE))
        unread.read.set()
        await answer
        assert not deletable_topic.appending() and deletable_topic.is_noted()


@virtual_time
async def test_a_resource_that_is_deleted_while_a_new_leader_reads_its_topic_is_sealed_too(
    monkeypatch: pytest.MonkeyPatch,
):
    unread = UnreadTopic(monkeypatch, given=True, hangs=True)
    deletable_topic, leader = unread.deletable_topic, await unread.next_leader()
    monkeypatch.setattr(
        deleted_topics_collector, "record_vanished_topics", lambda *args: []
    )  # the next look may be far away
    async with running_leader(leader):
        await wait_until(unread.attempted.is_set)
        unread.delete_resource(leader)
        await wait_until(lambda: TOPIC not in leader.topics)
        unread.read.set()
        await wait_until(lambda: not deletable_topic.appending() and deletable_topic.is_noted(), what="it is sealed")


@virtual_time
async def test_a_resource_deleted_before_the_new_leader_read_its_topic_is_found(
    monkeypatch: pytest.MonkeyPatch,
):
    looks = []

    def record(*args: Any) -> list[str]:
        looks.append(args)
        if len(looks) == 1:
            raise StoreUnavailable("broken by the test")
        return record_vanished_topics(*args)

    unread = UnreadTopic(monkeypatch, given=True)
    deletable_topic, leader = unread.deletable_topic, await unread.next_leader()
    monkeypatch.setattr(deleted_topics_collector, "record_vanished_topics", record)
    monkeypatch.setattr(topic_deletion, "CHECK_INTERVAL_SECONDS", 0.1)
    async with running_leader(leader):
        await wait_until(unread.attempted.is_set)
        unread.delete_resource(leader)
        await wait_until(lambda: not deletable_topic.appending() and deletable_topic.is_noted(), what="it is sealed")
    assert len(looks) == 2, "once more, since the filer did not answer"
