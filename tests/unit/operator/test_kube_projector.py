"""When a leader compares and writes: at news, not before it knows enough, and again after an API that failed."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterator

import pytest

from smq_operator import clock
from smq_operator.kube import projector
from smq_operator.kube.cache import Cache
from smq_operator.kube.errors import Conflict, Forbidden, KubeError, NotFound, Unreachable
from smq_operator.kube.events import EventWriter
from smq_operator.kube.kinds import EVENTS, SEGMENTS, TOPICS, Kind, Resource, key_of
from smq_operator.kube.projector import Projector
from smq_operator.world import Wish
from smq_storage.store import Store, open_store
from support.bad_manifests import manifest
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, leading, until
from support.projected import merged

NAME = "t-0-16-0"


class Server:
    """Resources in memory with versions, that the cache hears of at once; ``error`` is what it answers instead."""

    def __init__(self) -> None:
        self.there: dict[tuple[Kind, str], Resource] = {}
        self.events: list[Resource] = []
        self.cache = Cache()
        self.error: KubeError | None = None
        self.calls = self.version = 0

    def put(self, kind: Kind, resource: Resource) -> Resource:
        self.version += 1
        made = copy.deepcopy(resource)
        made["metadata"].setdefault("uid", f"uid-{self.version}")
        made["metadata"]["resourceVersion"] = str(self.version)
        self.there[kind, made["metadata"]["name"]] = made
        self.cache.put(kind, copy.deepcopy(made))
        return copy.deepcopy(made)

    def remove(self, kind: Kind, name: str) -> None:
        self.cache.drop(kind, self.there.pop((kind, name)))

    async def create(self, kind: Kind, body: Resource) -> Resource:
        self._called()
        if (kind, body["metadata"]["name"]) in self.there:
            raise Conflict("there already")
        return self.put(kind, body)

    async def patch(self, kind: Kind, name: str, namespace: str, change: Resource, part: str = "") -> Resource:
        if kind is not EVENTS:
            self._called()
        if (kind, name) not in self.there:
            raise NotFound(name)
        return self.put(kind, merged(self.there[kind, name], change))

    async def patch_status(self, kind: Kind, name: str, namespace: str, status: Resource) -> Resource:
        return await self.patch(kind, name, namespace, {"status": status})

    async def delete(self, kind: Kind, name: str, namespace: str = "", uid: str | None = None) -> None:
        self._called()
        self.remove(kind, name)

    async def create_event(self, body: Resource) -> Resource:
        self.events.append(body)
        return body

    def _called(self) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error


class Scene:
    """Topic ``default/t`` on an API in memory, for one leader after another over the same brokers and store."""

    def __init__(self) -> None:
        self.server = Server()
        self.store: Store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        self.world = FakeWorld()
        for number in range(3):
            self.fleet.add(f"b{number}")
        made = manifest({"partitions": 16}, name="t")
        made["metadata"] |= {"namespace": "default", "generation": 1}
        self.server.put(TOPICS, made)
        self.world.wish("default/t")
        self.world.topics["default/t"] = Wish("default/t", self.world.topics["default/t"].spec, self.topic_uid)

    @property
    def topic_uid(self) -> str:
        return str(self.topic["metadata"]["uid"])

    @property
    def topic(self) -> Resource:
        return self.server.there[TOPICS, "t"]

    @property
    def ready(self) -> str:
        found = {c["type"]: c for c in self.topic.get("status", {}).get("conditions", [])}
        return str(found.get("Ready", {}).get("status", ""))

    def phase(self, name: str = NAME) -> str:
        return str(self.server.there.get((SEGMENTS, name), {}).get("status", {}).get("phase", ""))

    def warnings(self) -> set[str]:
        return {event["reason"] for event in self.server.events if event["type"] == "Warning"}


def led(*works: Callable[[Scene, LeaderInMemory], Awaitable[None]], settle: int = 0) -> Scene:
    """Each of ``works`` is run beside a leader of its own, one after the other."""

    async def main() -> Scene:
        scene = Scene()
        for work in works:
            leader = LeaderInMemory(scene.world, scene.fleet, scene.store)
            events = EventWriter(scene.server, "test", "p", clock.now)
            kept = Projector(leader.loop, scene.server, scene.server.cache, events, settle)
            tasks = [asyncio.create_task(kept.keep()), asyncio.create_task(events.keep())]
            async with leading(leader):
                await work(scene, leader)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return scene

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(projector, "PACE", 0.02)
    monkeypatch.setattr(projector, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(projector, "RETRY_FIRST", 0.05)
    yield


async def shown(scene: Scene, leader: LeaderInMemory) -> None:
    await until(lambda: scene.phase() == "Open" and scene.ready == "True", what="it is shown")


async def rests(scene: Scene) -> None:
    """Returns when the loop has looked several times, and nothing was written."""
    calls = scene.server.calls
    await asyncio.sleep(0.5)
    assert scene.server.calls == calls


def test_it_is_shown_once_and_then_left_alone() -> None:
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        await shown(scene, leader)
        await rests(scene)

    scene = led(work)
    assert {event["reason"] for event in scene.server.events} >= {"Create"}


def test_a_new_leader_says_nothing_of_what_it_does_not_know_yet() -> None:
    """It has heard of no broker and has read no layout, and what is shown may be trouble that lasts."""

    async def next_one(scene: Scene, leader: LeaderInMemory) -> None:
        status = copy.deepcopy(scene.topic["status"])
        ready = next(c for c in status["conditions"] if c["type"] == "Ready")
        ready |= {"status": "False", "reason": "SealBlocked", "message": "of the leader before"}
        scene.server.put(TOPICS, scene.topic | {"status": status})
        await until(lambda: leader.loop.knows_everything)
        await rests(scene)
        assert scene.ready == "False"

    led(shown, next_one, settle=60_000_000)


@pytest.mark.parametrize(
    ("error", "warns"),
    [
        (Unreachable("no answer"), set()),
        (Conflict("somebody was first"), {"NotShown"}),
        (Forbidden("the operator may not create segments"), {"NotShown"}),
        (Forbidden("the namespace is being terminated"), set()),
    ],
    ids=str,
)
def test_what_could_not_be_written_is_written_later(error: KubeError, warns: set[str]) -> None:
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        scene.server.error = error
        await until(lambda: scene.server.calls >= 4, what="it tries again")
        assert scene.phase() == "" and leader.loop.topics["default/t"].layout is not None
        scene.server.error = None
        await shown(scene, leader)
        await rests(scene)

    assert led(work).warnings() == warns


def test_a_segment_that_is_deleted_comes_back() -> None:
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        await shown(scene, leader)
        scene.server.remove(SEGMENTS, NAME)
        await until(lambda: scene.phase() == "Open", 2, "it is back")

    led(work)


def test_a_topic_that_is_wished_no_more_is_left_to_the_garbage_collector() -> None:
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        await shown(scene, leader)
        del scene.world.topics["default/t"]
        scene.server.remove(TOPICS, "t")
        await until(lambda: not leader.loop.topics)
        scene.server.remove(SEGMENTS, NAME)
        await rests(scene)
        assert not scene.phase()

    led(work)


def test_a_topic_that_is_being_deleted_gets_nothing_more() -> None:
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        await shown(scene, leader)
        going = scene.topic["metadata"] | {"deletionTimestamp": "2024-01-01T00:00:00Z"}
        scene.server.put(TOPICS, scene.topic | {"metadata": going})
        scene.server.remove(SEGMENTS, NAME)
        await rests(scene)
        assert not scene.phase()

    led(work)


def test_an_older_definition_that_drops_a_field_is_not_asked_again_and_again() -> None:
    async def work(scene: Scene, leader: LeaderInMemory) -> None:
        await shown(scene, leader)
        calls = scene.server.calls
        put = scene.server.put

        def drop(kind: Kind, resource: Resource) -> Resource:
            """Takes no notice, and so changes no version."""
            return copy.deepcopy(scene.server.there[kind, key_of(resource)[1]])

        without = {key: value for key, value in scene.topic["status"].items() if key != "brokers"}
        put(TOPICS, scene.topic | {"status": without})
        scene.server.put = drop  # type: ignore[method-assign]
        await until(lambda: scene.server.calls > calls)
        await rests(scene)
        assert scene.server.calls == calls + 1

    led(work)
