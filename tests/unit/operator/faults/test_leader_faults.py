"""Whatever fails once in a leader: afterwards it works, or its process ends, or it says what does not work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from smq_core.errors import SmqError
from smq_operator.cleanup import topic_deletion
from smq_proto.v1 import admin_pb2, brokers_pb2, groups_pb2
from smq_storage.catalog.deleted_topics import read_deleted_topic
from smq_storage.object_store.store import Store, open_store
from support.fault_injection.leader_faults import KINDS, Fault, FaultInjected, FaultyFleet, leader_with
from support.in_memory.brokers import FakeBroker
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import run_in_virtual_time
from support.waiting import wait_until

KEPT, DELETED = "default/kept", "default/deleted"
LONGEST = 100.0
# The tasks of a leader that are supervised. If one of them cannot be started, the leader does not start.
SUPERVISED = 10


class History:
    """Two topics on four brokers: a broker dies, a group commits, one topic is deleted, a broker leaves."""

    def __init__(self, fault: Fault) -> None:
        self.store: Store = open_store("memory://")
        self.fleet, self.platform, self.fault = FaultyFleet(self.store), FakePlatform(4), fault
        for number in range(4):
            self.fleet.add(f"b{number}")
        for name in (KEPT, DELETED):
            self.platform.add_topic(name, min_segments=2)
        self.leader: LeaderInMemory = leader_with(fault, self.platform, self.fleet, self.store)
        self.done: list[str] = []
        self.rejections: list[str] = []
        self.started = False

    @property
    def ended(self) -> bool:
        """Whether the process ends now, so that another leader leads."""
        return self.leader.tasks.failure is not None

    @property
    def reported(self) -> bool:
        """Whether a problem, or the answer to a request, names what cannot be read."""
        damaged, problems = self.fault.damaged, self.leader.tasks.problems.all()
        return bool(damaged) and any(damaged in text for text in (*(p.message for p in problems), *self.rejections))

    async def until(self, what: str, condition: Callable[[], object]) -> bool:
        """Waits for it. False if the process ends, or says what does not work."""
        await wait_until(lambda: condition() or self.ended or self.reported, what)
        if condition():
            self.done.append(what)
            return True
        return False

    def is_open(self, name: str) -> bool:
        """Whether every segment has its replicas, on living brokers."""
        managed = self.leader.topics.get(name)
        if managed is None or managed.layout is None or not managed.is_stable:
            return False
        return all(
            (broker := self.fleet.brokers[replica.incarnation]).living
            and (managed.topic is not None and (managed.topic.uid, segment.name) in broker.held)
            for segment in managed.layout.segments
            for replica in segment.replicas
        )

    async def run(self) -> None:
        try:
            async with running_leader(self.leader):
                self.started = True
                await self.go()
        except FaultInjected:  # the process ends if its tasks cannot be started
            if self.started:
                raise

    async def go(self) -> None:
        opened = [await self.until(f"{name} is open", lambda name=name: self.is_open(name)) for name in (KEPT, DELETED)]
        if not all(opened):
            return
        victim = next(iter(self.fleet.brokers.values()))
        victim.living = False
        self.platform.terminated[victim.replica.incarnation] = "killed"
        if not await self.until("failover", lambda: self.is_open(KEPT) and self.is_open(DELETED)):
            return
        if not await self.retried("group", self.commit):
            return
        uid = self.leader.topics[DELETED].topic.uid  # type: ignore[union-attr]
        if not await self.retried("deletion", self.delete):
            return
        if not await self.until("the deletion is recorded", lambda: self.is_recorded(uid)):
            return
        leaving = next(b for b in self.fleet.brokers.values() if b.living)
        leaving.draining = True
        if await self.retried("drain", lambda: self.leave(leaving)):
            self.done.append("everything")

    def is_recorded(self, uid: str) -> bool:
        found = read_deleted_topic(self.store, uid)
        return found is not None and found.sealed

    async def retried(self, what: str, request: Callable[[], object]) -> bool:
        """Repeats a request as a client does."""
        async with asyncio.timeout(LONGEST):
            while not (self.ended or self.reported):
                try:
                    if await request():  # type: ignore[misc]
                        self.done.append(what)
                        return True
                except (RpcAborted, SmqError) as error:
                    self.rejections.append(str(error))
                await asyncio.sleep(0.5)
        return False

    async def commit(self) -> bool:
        join = groups_pb2.JoinGroupRequest(topic="kept", group="g", member="m")
        joined = await self.leader.call("JoinGroup", join)
        assert isinstance(joined, groups_pb2.GroupAssignment)
        positions = dict.fromkeys(joined.positions, 0)
        request = groups_pb2.CommitPositionsRequest(
            topic="kept",
            group="g",
            member="m",
            generation=joined.generation,
            positions=positions,
            epoch=joined.epoch,
        )
        async with asyncio.timeout(10):
            await self.leader.call("CommitPositions", request)
        return True

    async def delete(self) -> bool:
        if DELETED in self.platform.topics:
            await self.leader.call("DeleteTopic", admin_pb2.DeleteTopicRequest(topic="deleted"))
        return DELETED not in self.platform.topics

    async def leave(self, broker: FakeBroker) -> bool:
        reply = await self.leader.call("Report", broker.report())
        assert isinstance(reply, brokers_pb2.BrokerReportReply)
        return reply.may_leave


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_deletion, "CHECK_INTERVAL_SECONDS", 2.0)


@pytest.mark.parametrize("kind", KINDS)
def test_after_the_nth_fault_the_leader_works_or_has_ended_or_says_so(kind: str) -> None:
    outcomes = []
    at = 0
    while True:
        fault = Fault(kind, at)
        history = History(fault)
        try:
            with capture_logs():  # tracebacks take longer than all the rest
                run_in_virtual_time(history.run())
        except Exception as error:
            raise AssertionError(f"{kind} {at}: after {history.done}: {error!r}") from error
        works = history.done[-1:] == ["everything"]
        assert works or history.ended or not history.started or history.reported, f"{kind} {at}: {history.done}"
        outcomes.append("works" if works else "ended" if history.ended or not history.started else "reported")
        if at and not fault.happened:
            break
        at += 1
    assert at > 2, "there was nothing to fail"
    assert outcomes.count("works") >= len(outcomes) - SUPERVISED or kind == "damaged document", outcomes
