"""The leader seals from the journals of processes that have ended, in failovers and deletions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from smq_core.model.decision import DecisionAction
from smq_core.model.entities import Liveness, SealedSegment, Segment
from smq_proto.v1 import admin_pb2, brokers_pb2
from smq_storage.catalog import sealed_index
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeBroker, FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


class Cluster:
    """A topic of one segment with ten messages that only the two replicas have."""

    def __init__(self) -> None:
        self.store = open_store("memory://")
        self.fleet, self.platform = FakeFleet(self.store), FakePlatform(3)
        for number in range(3):
            self.fleet.add(f"b{number}")
        self.platform.add_topic(TOPIC)
        self.leader = LeaderInMemory(self.platform, self.fleet, self.store)
        self.uid = ""
        self.segment: Segment

    async def fill(self, count: int = 10) -> None:
        await wait_until(lambda: TOPIC in self.leader.topics and self.leader.topics[TOPIC].is_stable, what="it is open")
        managed = self.leader.topics[TOPIC]
        assert managed.layout is not None and managed.topic is not None
        self.uid, (self.segment,) = managed.topic.uid, managed.layout.segments
        await wait_until(lambda: all((self.uid, self.segment.name) in b.held for b in self.replicas))
        if count:
            self.fleet.write(self.uid, self.segment, count)

    @property
    def replicas(self) -> list[FakeBroker]:
        return [self.fleet.brokers[r.incarnation] for r in self.segment.replicas]

    def kill(self, broker: FakeBroker) -> None:
        """Its process is killed, and its journal stays."""
        broker.living = False
        self.platform.ended[broker.replica.incarnation] = "killed by the test"

    def blocked_reason(self) -> str:
        return self.leader.condition(TOPIC, "SealBlocked").reason

    async def sealed(self) -> SealedSegment:
        def entries() -> list[SealedSegment]:
            found = sealed_index.read(self.store, TOPIC, self.uid)
            return [entry for entry in found if entry.name == self.segment.name]

        await wait_until(entries, what="it is sealed")
        return entries()[0]


@asynccontextmanager
async def filled(count: int = 10) -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with running_leader(cluster.leader):
        await cluster.fill(count)
        yield cluster


@virtual_time
async def test_nothing_is_lost_if_all_replicas_are_killed_and_started_again():
    async with filled() as cluster:
        replicas = cluster.replicas
        for broker in replicas:
            cluster.kill(broker)
        await wait_until(lambda: cluster.blocked_reason() == "JournalsAwaited", what="the journals are waited for")
        message = cluster.leader.condition(TOPIC, "SealBlocked").message
        assert all(broker.replica.broker in message for broker in replicas) and "waits for a restart" in message
        for broker in replicas:
            cluster.fleet.restart(broker)
        entry = await cluster.sealed()
        assert (entry.end, entry.lost) == (10, None)


@virtual_time
async def test_one_journal_is_enough_and_a_later_leader_finds_it():
    async with filled() as cluster:
        for broker in cluster.replicas:
            cluster.kill(broker)
    cluster.fleet.restart(cluster.replicas[1])
    cluster.leader = LeaderInMemory(cluster.platform, cluster.fleet, cluster.store)
    async with running_leader(cluster.leader):
        entry = await cluster.sealed()
        assert (entry.end, entry.lost) == (10, None)


@virtual_time
async def test_a_failover_with_a_living_replica_does_not_wait_for_the_journal():
    async with filled() as cluster:
        cluster.kill(cluster.replicas[0])
        entry = await cluster.sealed()
        assert (entry.end, entry.lost) == (10, None)
        incarnation = cluster.replicas[0].replica.incarnation
        known = cluster.leader.registry.get(incarnation)
        assert known is None or known.liveness(cluster.leader.parts.clock()) is Liveness.ENDED


@virtual_time
async def test_the_cause_of_a_broker_that_was_killed_is_a_decision_and_in_the_list():
    async with filled() as cluster:
        killed = cluster.replicas[0].replica
        drained = next(b.replica for b in cluster.fleet.brokers.values() if b not in cluster.replicas)
        known = cluster.leader.registry.get(drained.incarnation)
        assert known is not None
        known.draining = True
        cluster.kill(cluster.fleet.brokers[drained.incarnation])
        cluster.kill(cluster.replicas[0])
        cluster.fleet.restart(cluster.replicas[0])
        await cluster.sealed()
        await wait_until(lambda: known.cause, what="the cause of the other one")
        ends = [d.reason for d in cluster.leader.decisions.recent if d.action is DecisionAction.BROKER_ENDED]
        assert ends == [f"{killed.broker}: killed by the test"], "a broker that drained was expected to end"
        listed = await cluster.leader.call("ListBrokers", admin_pb2.ListBrokersRequest())
        assert isinstance(listed, admin_pb2.BrokerList)
        causes = {b.incarnation: (b.ended, b.ended_at > 0) for b in listed.brokers}
        assert causes[killed.incarnation] == ("killed by the test", True)


@virtual_time
async def test_a_damaged_journal_waits_for_the_other_one():
    async with filled() as cluster:
        first, second = cluster.replicas
        for broker in (first, second):
            cluster.kill(broker)
        first.journal_damaged = True
        cluster.fleet.restart(first)
        await wait_until(lambda: cluster.blocked_reason() == "JournalsAwaited", what="the other one may have all")
        cluster.fleet.restart(second)
        entry = await cluster.sealed()
        assert (entry.end, entry.lost) == (10, None)


@virtual_time
async def test_damaged_journals_are_used_if_there_is_nothing_better():
    async with filled() as cluster:
        for broker in cluster.replicas:
            cluster.kill(broker)
            broker.journal_damaged = True
            cluster.fleet.restart(broker)
        assert (await cluster.sealed()).end == 10


@virtual_time
async def test_processes_that_come_back_without_journals_leave_what_the_filer_has():
    async with filled() as cluster:
        for broker in cluster.replicas:
            cluster.kill(broker)
            cluster.fleet.restart(broker, journal=False)
        assert (await cluster.sealed()).end == 0


@pytest.mark.parametrize("whole", [True, False])
@virtual_time
async def test_a_whole_journal_without_the_segment_proves_that_nothing_was_lost(whole: bool):
    async with filled(count=0) as cluster:
        first, second = cluster.replicas
        for broker in (first, second):
            cluster.kill(broker)
        del first.held[cluster.uid, cluster.segment.name]  # as if it had never opened it
        first.journal_whole = whole
        cluster.fleet.restart(first)
        cluster.fleet.restart(second, journal=False)
        entry = await cluster.sealed()
        assert (entry.end, entry.lost is None) == (0, whole)


@virtual_time
async def test_a_broker_stays_until_its_recovered_journals_are_sealed():
    async with filled() as cluster:
        for broker in cluster.replicas:
            cluster.kill(broker)
        held = cluster.fleet.restart(cluster.replicas[0])
        held.answers = False  # no seal request arrives
        held.draining = True

        async def may_leave() -> bool:
            reply = await cluster.leader.call("Report", held.report())
            assert isinstance(reply, brokers_pb2.BrokerReportReply)
            return reply.may_leave

        deletions = cluster.leader.topic_deletions
        await wait_until(lambda: not deletions.blocks_leaving("another"), what="no deletion keeps a broker")
        assert not await may_leave()
        held.answers = True
        await cluster.sealed()
        while not await may_leave():
            await asyncio.sleep(0.02)
        assert not held.recovered


@virtual_time
async def test_a_deleted_topic_is_sealed_from_the_journals():
    async with filled() as cluster:
        first, second = cluster.replicas
        for broker in (first, second):
            cluster.kill(broker)
        first.journal_damaged = True
        for broker in (first, second):
            cluster.fleet.restart(broker)
        await cluster.leader.call("DeleteTopic", admin_pb2.DeleteTopicRequest(topic="t"))
        assert not first.held or not second.held


@virtual_time
async def test_a_journal_that_failed_is_a_condition_of_the_topics_on_that_broker():
    async with filled() as cluster:
        cluster.leader.health.warm_up_us = 0
        assert cluster.leader.condition(TOPIC, "JournalFailed").status == "False"
        cluster.replicas[0].journal_problem = "1 segments continue without a journal: no space left on device"
        await wait_until(lambda: cluster.leader.condition(TOPIC, "JournalFailed").status == "True")
        name = cluster.replicas[0].replica.broker
        assert f"{name}: 1 segments continue" in cluster.leader.condition(TOPIC, "JournalFailed").message
        cluster.replicas[0].journal_problem = ""
        await wait_until(lambda: cluster.leader.condition(TOPIC, "JournalFailed").status == "False")
