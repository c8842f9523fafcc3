"""A manual request is answered when the layout has it, so a leader that ends after the answer cannot lose it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from smq_core.model.entities import Layout, Reason
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.topic_reconciler import TopicReconciler
from smq_operator.reconcile import manual_requests
from smq_proto.v1 import admin_pb2
from smq_storage.catalog import layouts
from smq_storage.object_store.store import Store, open_store
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, RpcAborted, running_leader
from support.virtual_time import virtual_time
from support.waiting import wait_until

TOPIC, NAME = "default/t", "t-0-16-0"


class RequestedTopic:
    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        fleet, self.platform = FakeFleet(self.store), FakePlatform(3)
        for number in range(3):
            fleet.add(f"b{number}")
        self.platform.add_topic(TOPIC)
        self.host = LeaderInMemory(self.platform, fleet, self.store)

    def quiet(self) -> bool:
        return TOPIC in self.host.topics and self.host.topics[TOPIC].is_stable

    @property
    def leader(self) -> TopicReconciler:
        found = self.host.topics[TOPIC].reconciler
        assert found is not None
        return found

    def written(self) -> Layout:
        managed = self.host.topics[TOPIC]
        found = layouts.read_layout(self.store, TOPIC, managed.topic.uid) if managed.topic is not None else None
        assert found is not None
        return found[0]

    def plan(self, action: str) -> Awaitable[object]:
        return self.host.call(
            "ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic="t", action=action.upper(), segments=[NAME])
        )


@asynccontextmanager
async def open_requested_topic() -> AsyncIterator[RequestedTopic]:
    requested_topic = RequestedTopic()
    async with running_leader(requested_topic.host):
        await wait_until(requested_topic.quiet, what="the topic is open")
        yield requested_topic


@virtual_time
async def test_the_answer_comes_when_the_layout_says_it() -> None:
    async with open_requested_topic() as requested_topic:
        await requested_topic.plan("split")
        written = requested_topic.written()
        assert NAME not in written or written.segment(NAME).sealed_because is Reason.MANUAL
        assert len([s for s in written.segments if not s.successors]) == 2


@virtual_time
async def test_a_waiting_request_is_reported_and_a_repeated_one_joins_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_requested_topic() as requested_topic:
        monkeypatch.setattr(manual_requests, "LAYOUT_WRITE_TIMEOUT_SECONDS", 0.2)
        monkeypatch.setattr(requested_topic.host.parts.assignments, "views", dict)
        for _ in range(2):
            with pytest.raises(RpcAborted, match=f"the split of {NAME} is pending: no broker is available"):
                await requested_topic.plan("split")
        assert len(requested_topic.leader.requests.waiting) == 1
        with pytest.raises(RpcAborted, match="already: wait for it"):
            await requested_topic.plan("roll")
        monkeypatch.undo()
        await wait_until(
            lambda: requested_topic.quiet() and len(requested_topic.written().segments) == 2, what="it is done later"
        )


@virtual_time
async def test_a_superseded_request_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_requested_topic() as requested_topic:
        monkeypatch.setattr(requested_topic.host.parts.assignments, "views", dict)
        planned = asyncio.ensure_future(requested_topic.plan("split"))
        await wait_until(lambda: requested_topic.leader.requests.waiting, what="it waits")
        (request,) = requested_topic.leader.requests.waiting
        assert request == SegmentChange(SegmentAction.SPLIT, (NAME,))
        requested_topic.leader.requests.waiting.insert(0, SegmentChange(SegmentAction.ROLL, (NAME,)))
        monkeypatch.undo()
        with pytest.raises(RpcAborted, match=f"the split of {NAME} cannot be done any more: {NAME} is sealing"):
            await planned
        assert any(d.action == "refused" and d.segments == (NAME,) for d in requested_topic.host.decisions.recent)
