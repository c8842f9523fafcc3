"""What a person asks for by hand is answered when it is written down: no leader's end forgets it after the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from smq_core.decide import Request
from smq_core.leading import TopicLeader
from smq_core.model import Layout, Reason
from smq_operator import asking
from smq_proto.v1 import leader_pb2 as lpb
from smq_storage import layouts
from smq_storage.store import Store, open_store
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, Refused, leading, until

TOPIC, NAME = "default/t", "t-0-16-0"


class Scene:
    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        fleet, self.world = FakeFleet(self.store), FakeWorld(3)
        for number in range(3):
            fleet.add(f"b{number}")
        self.world.wish(TOPIC)
        self.host = LeaderInMemory(self.world, fleet, self.store)

    def quiet(self) -> bool:
        return TOPIC in self.host.loop.topics and self.host.loop.topics[TOPIC].quiet

    @property
    def leader(self) -> TopicLeader:
        found = self.host.loop.topics[TOPIC].leader
        assert found is not None
        return found

    def written(self) -> Layout:
        run = self.host.loop.topics[TOPIC]
        found = layouts.read_layout(self.store, TOPIC, run.topic.uid) if run.topic is not None else None
        assert found is not None
        return found[0]

    def plan(self, action: str) -> Awaitable[object]:
        return self.host.call("Plan", lpb.PlanRequest(topic="t", action=action, segments=[NAME]))


def play(work: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene()
        async with leading(scene.host):
            await until(scene.quiet, what="the topic is open")
            await work(scene)

    asyncio.run(main())


def test_the_answer_comes_when_the_layout_says_it() -> None:
    async def work(scene: Scene) -> None:
        await scene.plan("split")
        written = scene.written()
        assert NAME not in written or written.segment(NAME).sealed_because is Reason.MANUAL
        assert len([s for s in written.segments if not s.successors]) == 2

    play(work)


def test_what_waits_is_told_and_asking_again_joins_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        monkeypatch.setattr(asking, "WRITTEN_WITHIN", 0.2)
        monkeypatch.setattr(scene.host.loop, "views", dict)
        for _ in range(2):
            with pytest.raises(Refused, match=f"the split of {NAME} waits: there is no broker"):
                await scene.plan("split")
        assert len(scene.leader.requests) == 1
        with pytest.raises(Refused, match="already: wait for it"):
            await scene.plan("roll")
        monkeypatch.undo()
        await until(lambda: scene.quiet() and len(scene.written().segments) == 2, what="it is done later")

    play(work)


def test_what_something_else_came_before_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(scene: Scene) -> None:
        monkeypatch.setattr(scene.host.loop, "views", dict)
        asked = asyncio.ensure_future(scene.plan("split"))
        await until(lambda: scene.leader.requests, what="it waits")
        (request,) = scene.leader.requests
        assert request == Request("split", (NAME,))
        scene.leader.requests.insert(0, Request("roll", (NAME,)))
        monkeypatch.undo()
        with pytest.raises(Refused, match=f"the split of {NAME} cannot be done any more: {NAME} is sealing"):
            await asked
        assert any(d.action == "refused" and d.segments == (NAME,) for d in scene.host.loop.decisions)

    play(work)
