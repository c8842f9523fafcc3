"""A replica that acked beyond an accepted loss reports again: the loss is recorded up to its watermark."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from smq_core.errors import StoreUnavailable
from smq_core.model.decision import DecisionAction
from smq_core.model.entities import SealedSegment, Segment
from smq_core.model.loss import Loss
from smq_proto.v1 import admin_pb2, topics_pb2
from smq_storage.catalog import paths, sealed_index
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC = "default/t"


class AcceptedLoss:
    """A topic with one segment, of which 10 messages are acked and reported. Then its brokers are cut off."""

    def __init__(self) -> None:
        self.store = open_store("memory://")
        self.fleet, self.platform = FakeFleet(self.store), FakePlatform(4)
        for number in range(4):
            self.fleet.add(f"b{number}")
        self.platform.add_topic(TOPIC)
        self.uid = ""
        self.segment: Segment

    def leader(self) -> LeaderInMemory:
        return LeaderInMemory(self.platform, self.fleet, self.store)

    @property
    def entry(self) -> SealedSegment | None:
        found = sealed_index.read(self.store, TOPIC, self.uid)
        return found[0] if found else None

    @property
    def lost(self) -> tuple[int, int] | None:
        entry = self.entry
        assert entry is not None
        return None if entry.lost is None else (entry.lost.start, entry.lost.stop)

    def cut_off(self, leader: LeaderInMemory) -> None:
        for replica in self.segment.replicas:
            self.fleet.brokers[replica.incarnation].answers = False
            known = leader.registry.get(replica.incarnation)
            if known is not None:
                known.suspected = True

    def return_primary(self) -> None:
        self.fleet.brokers[self.segment.primary.incarnation].answers = True

    def write(self, count: int) -> None:
        self.fleet.write(self.uid, self.segment, count)

    async def write_and_report(self, leader: LeaderInMemory) -> None:
        await wait_until(lambda: TOPIC in leader.topics and leader.topics[TOPIC].is_stable, what="it is open")
        managed = leader.topics[TOPIC]
        assert managed.layout is not None and managed.topic is not None
        self.uid, (self.segment,) = managed.topic.uid, managed.layout.segments
        key, replicas = (self.uid, self.segment.name), self.segment.replicas
        await wait_until(lambda: all(key in self.fleet.brokers[r.incarnation].held for r in replicas))
        self.write(10)
        await wait_until(
            lambda: managed.reconciler and managed.reconciler.watermarks.get(self.segment.name) == 10,
            what="it is reported",
        )

    async def accept(self, leader: LeaderInMemory) -> None:
        """Seals the segment without its replicas."""
        self.cut_off(leader)
        await leader.call(
            "ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic="t", action="ROLL", segments=[self.segment.name])
        )
        managed = leader.topics[TOPIC]
        await wait_until(lambda: managed.reconciler and managed.reconciler.blocked, what="nobody answers")
        await leader.call("AcceptLoss", admin_pb2.AcceptLossRequest(topic="t", segment=self.segment.name))

    async def wait_indexed(self, leader: LeaderInMemory) -> None:
        managed = leader.topics[TOPIC]
        await wait_until(
            lambda: managed.is_stable and managed.layout and self.segment.name not in managed.layout,
            what="it is sealed, and its successors are open",
        )


@asynccontextmanager
async def accepted_loss() -> AsyncIterator[tuple[AcceptedLoss, LeaderInMemory]]:
    loss = AcceptedLoss()
    leader = loss.leader()
    async with running_leader(leader):
        await loss.write_and_report(leader)
        await loss.accept(leader)
        await loss.wait_indexed(leader)
        assert loss.entry is not None and loss.entry.end == 0
        assert loss.lost == (0, 10)
        yield loss, leader


def decisions(leader: LeaderInMemory) -> list[str]:
    return [decision.reason for decision in leader.decisions.recent if decision.action is DecisionAction.RECORD_LOSS]


@virtual_time
async def test_what_was_acked_beyond_the_recorded_loss_is_recorded_once_it_is_reported() -> None:
    async with accepted_loss() as (loss, leader):
        before = loss.entry
        assert before is not None
        loss.write(7)
        loss.return_primary()
        await wait_until(lambda: loss.lost == (0, 17), what="the loss is raised")
        assert loss.entry == replace(before, lost=Loss(0, 17, before.lost.at_least))
        await wait_until(lambda: decisions(leader), what="a decision says so")
        (reason,) = decisions(leader)
        assert "offsets 0 to at least 17 are lost" in reason
        assert "offsets 0 to at least 17" in leader.condition(TOPIC, "DataLoss").message
        history: Any = await leader.call("History", topics_pb2.HistoryRequest(topic="t"))
        assert [(s.lost.start, s.lost.stop) for s in history.segments if s.name == loss.segment.name] == [(0, 17)]


@virtual_time
async def test_reports_that_are_repeated_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with accepted_loss() as (loss, leader):
        loss.write(7)
        loss.return_primary()
        await wait_until(lambda: decisions(leader) and leader.tasks.idle)
        page = paths.index_page(TOPIC, loss.uid, 0)
        written = loss.store.get(page)
        attempts: list[object] = []
        monkeypatch.setattr(sealed_index, "raise_losses", lambda *given: attempts.append(given) or [])
        for _ in range(3):
            await leader.report_all()
        await wait_until(lambda: leader.tasks.idle)
        assert not attempts and loss.store.get(page) == written and len(decisions(leader)) == 1


@virtual_time
async def test_the_next_leader_records_what_the_one_before_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = []

    def unavailable(*_: object) -> list[SealedSegment]:
        failed.append(1)
        raise StoreUnavailable("the filer is away")

    async with accepted_loss() as (loss, leader):
        loss.write(7)
        with monkeypatch.context() as patch:
            patch.setattr(sealed_index, "raise_losses", unavailable)
            loss.return_primary()
            await wait_until(lambda: len(failed) > 1, what="it is tried at every report")
            await leader.loop.stop()
            assert loss.lost == (0, 10)
    second = loss.leader()
    async with running_leader(second):
        await wait_until(lambda: loss.lost == (0, 17), what="the next leader records it")
        await wait_until(lambda: "offsets 0 to at least 17" in second.condition(TOPIC, "DataLoss").message)
    third = loss.leader()
    async with running_leader(third):
        await wait_until(lambda: TOPIC in third.topics and third.topics[TOPIC].index.is_read)
        await third.report_all()
        await wait_until(lambda: third.tasks.idle)
        assert loss.lost == (0, 17) and not decisions(third)


def unavailable(*_: object) -> list[SealedSegment]:
    raise StoreUnavailable("the filer is away")


@pytest.mark.parametrize("failing", ["raise_losses", "append"])
@virtual_time
async def test_a_broker_may_not_leave_before_its_loss_is_recorded(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = AcceptedLoss()
    leader = loss.leader()
    async with running_leader(leader):
        await loss.write_and_report(leader)
        managed = leader.topics[TOPIC]
        primary = loss.fleet.brokers[loss.segment.primary.incarnation]
        with monkeypatch.context() as patch:
            patch.setattr(sealed_index, failing, unavailable)
            await loss.accept(leader)
            outcome = managed.reconciler.outcome if managed.reconciler is not None else None
            assert outcome is not None
            await wait_until(
                lambda: outcome(loss.segment.name) is not None or loss.segment.name in managed.index.sealed,
                what="it is sealed",
            )
            loss.write(7)
            primary.held[loss.uid, loss.segment.name].fence()
            primary.draining = True
            await wait_until(
                lambda: not leader.topic_deletions.blocks_leaving(primary.replica.incarnation),
                what="only the loss holds it up",
            )

            async def may_leave() -> bool:
                reply: Any = await leader.call("Report", primary.report())
                return bool(reply.may_leave)

            for _ in range(5):
                assert not await may_leave()
        await wait_until(may_leave, what="the loss is recorded")
        assert loss.lost == (0, 17)


@virtual_time
async def test_an_index_that_was_read_before_does_not_take_the_loss_back() -> None:
    async with accepted_loss() as (loss, leader):
        older = sealed_index.load(loss.store, TOPIC, loss.uid)
        loss.write(7)
        loss.return_primary()
        await wait_until(lambda: decisions(leader), what="the loss is raised")
        leader.topics[TOPIC].index.merge(older)
        assert leader.topics[TOPIC].index.sealed[loss.segment.name].lost == loss.entry.lost


@virtual_time
async def test_a_leader_takes_in_what_another_one_recorded() -> None:
    async with accepted_loss() as (loss, leader):
        managed = leader.topics[TOPIC]
        before = managed.index.changes
        sealed_index.raise_losses(loss.store, TOPIC, loss.uid, {loss.segment.name: 12})
        managed.index.merge(sealed_index.load(loss.store, TOPIC, loss.uid))
        assert managed.index.sealed[loss.segment.name].lost.stop == 12
        assert managed.index.changes == before + 1, "so the change is announced"


@virtual_time
async def test_a_loss_that_nobody_knew_of_is_recorded() -> None:
    loss = AcceptedLoss()
    first = loss.leader()
    async with running_leader(first):
        await loss.write_and_report(first)
    loss.cut_off(first)
    second = loss.leader()
    async with running_leader(second):
        await wait_until(lambda: TOPIC in second.topics and second.topics[TOPIC].layout is not None)
        await loss.accept(second)
        await loss.wait_indexed(second)
        assert loss.entry is not None and loss.entry.lost == Loss(0, 0, at_least=True)
        await wait_until(lambda: second.condition(TOPIC, "DataLoss").status == "Unknown", what="nobody has a report")
        loss.return_primary()
        await wait_until(lambda: loss.lost == (0, 10), what="the primary reports it")
        await wait_until(lambda: "offsets 0 to at least 10" in second.condition(TOPIC, "DataLoss").message)


@virtual_time
async def test_invalid_reports_and_those_of_former_topics_record_nothing() -> None:
    async with accepted_loss() as (loss, leader):
        report = loss.fleet.brokers[loss.segment.primary.incarnation].report()
        (segment,) = [s for s in report.status.segments if s.segment == loss.segment.name]
        segment.watermark = segment.end + 1
        await leader.call("Report", report)
        segment.uid, segment.watermark, segment.end = "another", 50, 50
        await leader.call("Report", report)
        loss.write(7)
        loss.return_primary()
        await wait_until(lambda: decisions(leader), what="the next valid report is recorded")
        assert loss.lost == (0, 17) and len(decisions(leader)) == 1
