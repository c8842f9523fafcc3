"""A leader over fake brokers and a store in memory that shows its topics on a real Kubernetes API."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from smq_core.model import Phase
from smq_operator import clock
from smq_operator.kube.api import KubeApi
from smq_operator.kube.cache import Cache
from smq_operator.kube.events import EventWriter
from smq_operator.kube.feed import Scope
from smq_operator.kube.kinds import SEGMENTS, TOPICS, Key, Resource
from smq_operator.kube.projector import Projector
from smq_operator.kube.sync import Sync
from smq_operator.world import Wish
from smq_storage.manifest import parse_resource
from smq_storage.store import Store
from support.fake_fleet import FakeFleet
from support.leader_in_memory import FakeWorld, LeaderInMemory, leading


class CachedWorld(FakeWorld):
    """Wishes are the Topics of the cache."""

    def __init__(self, cache: Cache, brokers: int) -> None:
        super().__init__(brokers)
        self.cache = cache
        self._parsed: dict[Key, tuple[tuple[str, int], Wish]] = {}

    def wishes(self) -> Mapping[str, Wish]:
        found = {}
        for key, topic in self.cache.topics.items():
            metadata = topic["metadata"]
            version = (metadata["uid"], metadata["generation"])
            if key not in self._parsed or self._parsed[key][0] != version:
                self._parsed[key] = (version, self._wish(topic))
            wish = self._parsed[key][1]
            found[wish.name] = wish
        return found

    def _wish(self, topic: Resource) -> Wish:
        parsed = parse_resource(topic)
        return Wish(parsed.full_name, parsed.spec, topic["metadata"]["uid"])


class StoppingApi(KubeApi):
    """A process that dies at a write, topic by topic.

    Of each topic of ``left`` so many writes are done; the next one is not begun, or (``unheard``) done but never heard
    of, and from then on the topic is ``dead``: nobody does anything for it.
    """

    writes = 0

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.left: dict[str, int] = {}
        self.unheard: set[str] = set()
        self.dead: set[str] = set()

    async def call(self, method: str, path: str, body: Resource | None = None, **more: Any) -> Resource:
        if method == "GET":
            return await super().call(method, path, body, **more)
        self.writes += 1
        topic = _topic_of(path, body or {})
        if topic in self.dead:
            await asyncio.Event().wait()
        if topic in self.left:
            self.left[topic] -= 1
            if self.left[topic] < 0:
                self.dead.add(topic)
                if topic in self.unheard:
                    await super().call(method, path, body, **more)
                await asyncio.Event().wait()
        return await super().call(method, path, body, **more)


def _topic_of(path: str, body: Resource) -> str:
    """The full name of the topic that a write is for."""
    _, _, rest = path.partition("/namespaces/")
    namespace, plural, name, *_ = [*rest.split("/"), "", ""]
    about = body.get("involvedObject", {})
    name = about.get("name") or name or body.get("metadata", {}).get("name", "")
    is_topic = plural == "topics" or about.get("kind") == "Topic"
    return f"{namespace}/{name if is_topic else name.rsplit('-', 3)[0]}"


class ShownLeader(LeaderInMemory):
    """Use ``showing`` to run it."""

    def __init__(self, kubeconfig: Path, namespace: str, fleet: FakeFleet, store: Store) -> None:
        self.cache = Cache()
        super().__init__(CachedWorld(self.cache, len(fleet.brokers)), fleet, store)
        self.api = StoppingApi.connect({"KUBECONFIG": str(kubeconfig)})
        self.effects.dead = self.api.dead
        self.sync = Sync(self.api, self.cache, clock.now, [Scope((TOPICS, SEGMENTS), namespace)])
        self.namespace = namespace
        self.process = uuid.uuid4().hex
        self.projector: Projector | None = None
        self.events = EventWriter(self.api, "test", self.process, clock.now)

    @property
    def shown(self) -> Projector:
        assert self.projector is not None
        return self.projector

    def run_of(self, topic: str) -> Any:
        return self.loop.topics[f"{self.namespace}/{topic}"]

    def is_quiet(self, topic: str) -> bool:
        """Every segment is open on living brokers, and nothing is on its way."""
        run = self.loop.topics.get(f"{self.namespace}/{topic}")
        if run is None or run.layout is None or self.loop._tasks:
            return False
        return all(
            s.phase is Phase.OPEN
            and not s.successors
            and all(
                self.fleet.brokers[r.incarnation].living
                and (run.layout.uid, s.name) in self.fleet.brokers[r.incarnation].held
                for r in s.replicas
            )
            for s in run.layout.segments
        )


@asynccontextmanager
async def showing(leader: ShownLeader, settle: int = 500_000) -> AsyncIterator[None]:
    """Runs the leader and its projections until the block ends; then both are gone at once, as a killed process is."""
    await leader.sync.first(lambda why: None)
    leader.projector = Projector(leader.loop, leader.api, leader.cache, leader.events, settle)
    tasks = [asyncio.create_task(work) for work in (leader.projector.keep(), leader.events.keep(), leader.sync.keep())]
    try:
        async with leading(leader):
            yield
    finally:
        leader.sync.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        leader.api.close()
