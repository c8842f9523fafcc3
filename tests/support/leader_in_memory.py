"""A leader's loop and service in the test's own process, over an in-memory store and fake brokers."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace

from smq_core.effects import Effect
from smq_core.errors import SmqError, UnknownTopic
from smq_core.leading import TopicLeader
from smq_core.model import TopicSpec
from smq_operator import clock
from smq_operator.collect import Collector
from smq_operator.collecting import Patience as Pace
from smq_operator.deaf import Deaf
from smq_operator.desk import Desk
from smq_operator.doubts import Doubts
from smq_operator.effects import Effects
from smq_operator.endings import Endings
from smq_operator.groups import Groups
from smq_operator.loop import LeaderLoop
from smq_operator.orphans import Orphans
from smq_operator.registry import Registry
from smq_operator.service import LeaderService
from smq_operator.topic import TopicRun
from smq_operator.world import Problem, Wish
from smq_storage.conditional import Patience
from smq_storage.manifest import parse_manifest
from smq_storage.store import Store, StoreSettings
from support.fake_fleet import FakeFleet

SETTLE = 100_000


class FakeWorld:
    """Wishes and proofs as the test sets them."""

    def __init__(self, brokers: int = 3) -> None:
        self.topics: dict[str, Wish] = {}
        self.dead: dict[str, str] = {}
        self.count = brokers

    async def start(self, changed: Callable[[], None]) -> None: ...

    async def stop(self) -> None: ...

    def wish(self, name: str, **spec: object) -> None:
        small = {"partitions": 16} | spec
        self.topics[name] = Wish(name, TopicSpec(**small))  # type: ignore[arg-type]

    def wishes(self) -> Mapping[str, Wish]:
        return dict(self.topics)

    def problems(self) -> list[Problem]:
        return []

    async def apply(self, manifest: str) -> tuple[str, str]:
        wish = parse_manifest(manifest)
        known = self.topics.get(wish.full_name)
        self.topics[wish.full_name] = Wish(wish.full_name, wish.spec)
        return wish.full_name, "created" if known is None else "configured"

    async def delete(self, topic: str) -> None:
        if self.topics.pop(topic, None) is None:
            raise UnknownTopic(topic)

    async def set_paused(self, topic: str, paused: bool) -> None:
        self.topics[topic] = replace(self.topics[topic], paused=paused)

    def brokers_wanted(self) -> int:
        return self.count

    def want_brokers(self, count: int, go: str | None = None) -> None:
        self.count = count

    def proof_of_death(self, incarnation: str) -> str | None:
        return self.dead.get(incarnation)

    def claims(self, broker: str, incarnation: str) -> bool | None:
        return None


class StoppingEffects(Effects):
    """Carries out effects until ``left`` of them were begun; what then happens to the next one says ``how``.

    ``before``: it is not begun, nor any other. ``unheard``: it is carried out, but the leader never hears it, and
    begins no other. ``stuck``: it is not begun, but all others are.
    """

    left: int | None = None
    how = "before"
    done = 0
    dead: Container[str] = ()
    """Topics of which nothing goes on any more."""

    async def run(self, run: TopicRun, leader: TopicLeader, effect: Effect) -> None:
        self.done += 1
        if run.name in self.dead:
            await asyncio.Event().wait()
        number = self.done
        if self.left is not None and number > self.left and (number == self.left + 1 or self.how != "stuck"):
            if self.how == "unheard" and number == self.left + 1:
                await super().run(copy.copy(run), copy.deepcopy(leader), effect)
            await asyncio.Event().wait()
        await super().run(run, leader, effect)


class Refused(Exception):
    """What ``context.abort`` raised."""


class Context:
    """The part of a gRPC context that a refusal needs."""

    async def abort(self, status: object, message: str, trailing_metadata: object = ()) -> None:
        raise Refused(message)


class LeaderInMemory:
    """One leader. Use ``leading`` to run it."""

    def __init__(self, world: FakeWorld, fleet: FakeFleet, store: Store) -> None:
        self.world, self.fleet, self.store = world, fleet, store
        self.pool = ThreadPoolExecutor(4)
        patience = Patience(2.0)
        self.registry = Registry(world)
        self.effects = StoppingEffects(store, fleet, self.pool, clock.now, patience)
        self.loop = LeaderLoop(world, self.registry, store, self.effects, clock.now, patience, settle=SETTLE)
        self.desk = Desk(
            self.loop,
            fleet,  # type: ignore[arg-type]
            Doubts(self.loop, fleet),
            Groups(self.loop, patience),
            Orphans(self.loop, fleet),
            Deaf(self.loop),
            Endings(self.loop, fleet, patience),
            StoreSettings(store.url),
        )
        self.service = LeaderService(self.desk)
        self.collector = Collector(self.loop, self.desk.groups, Pace(every=SETTLE), patience)

    async def call(self, method: str, request: object) -> object:
        """Calls a method of the service. Raises Refused."""
        return await getattr(self.service, method)(request, Context())

    async def hear(self) -> None:
        """One report of every broker that can be reached."""
        for broker in list(self.fleet.brokers.values()):
            if broker.living and broker.answers:
                try:
                    await self.call("Report", broker.report())
                except (Refused, SmqError):
                    continue


@asynccontextmanager
async def leading(*leaders: LeaderInMemory) -> AsyncIterator[None]:
    """Runs the leaders, with a report of each broker every 20 ms, until the block ends."""

    async def reports() -> None:
        while True:
            for leader in leaders:
                await leader.hear()
            await asyncio.sleep(0.02)

    tasks = [asyncio.create_task(leader.loop.run()) for leader in leaders]
    tasks += [asyncio.create_task(reports()), *(asyncio.create_task(it.desk.groups.keep()) for it in leaders)]
    tasks += [asyncio.create_task(it.collector.keep()) for it in leaders]
    tasks += [asyncio.create_task(it.desk.endings.keep()) for it in leaders]
    try:
        yield
    finally:
        for leader in leaders:
            await leader.loop.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for leader in leaders:
            leader.pool.shutdown(wait=False, cancel_futures=True)


async def until(condition: Callable[[], object], timeout: float = 10.0, what: str = "") -> None:
    """Returns when the condition is true."""
    try:
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {timeout} s: {what or condition}") from None
