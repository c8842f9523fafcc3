"""A leader over fake brokers and a store in memory that shows its topics on a real Kubernetes API."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from smq_core.model.entities import Phase
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.events import EventRecorder
from smq_operator.kube.client.kinds import SEGMENTS, TOPICS, Key, Resource
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.informer.list_watch import Informer
from smq_operator.kube.informer.watcher import WatchScope
from smq_operator.kube.status.reconciler import StatusReconciler
from smq_operator.kube.status.writer import StatusApi
from smq_operator.platform_port import DesiredTopic
from smq_operator.runtime import clock
from smq_storage.object_store.store import Store
from smq_storage.topic_manifests.parser import parse_resource
from support.in_memory.brokers import FakeFleet
from support.in_memory.leader import FakePlatform, LeaderInMemory, running_leader


def status_reconciler(
    leader: LeaderInMemory, api: StatusApi, cache: ResourceCache, events: EventRecorder
) -> StatusReconciler:
    """The status reconciler of this leader."""
    parts = leader.parts
    return StatusReconciler(
        topics=parts.topics,
        topic_events=parts.events,
        platform=parts.platform,
        decisions=parts.decisions,
        requests=parts.requests,
        clock=parts.clock,
        api=api,
        cache=cache,
        events=events,
        health=parts.health,
        problems=parts.tasks.problems,
    )


class CachedPlatform(FakePlatform):
    """The desired topics are the Topics of the cache."""

    def __init__(self, cache: ResourceCache, brokers: int) -> None:
        super().__init__(brokers)
        self.cache = cache
        self._parsed: dict[Key, tuple[tuple[str, int], DesiredTopic]] = {}

    def desired_topics(self) -> Mapping[str, DesiredTopic]:
        found = {}
        for key, topic in self.cache.topics.items():
            metadata = topic["metadata"]
            version = (metadata["uid"], metadata["generation"])
            if key not in self._parsed or self._parsed[key][0] != version:
                self._parsed[key] = (version, self._desired_topic(topic))
            desired = self._parsed[key][1]
            found[desired.name] = desired
        return found

    def _desired_topic(self, topic: Resource) -> DesiredTopic:
        parsed = parse_resource(topic)
        return DesiredTopic(name=parsed.full_name, spec=parsed.spec, uid=topic["metadata"]["uid"])


class CrashingKubeApi(KubeApi):
    """A process that crashes at a write, topic by topic.

    ``writes_left`` is how many writes of a topic succeed. The next one is not sent, or (``lost_replies``) it is sent
    and its reply is lost. From then on the topic is ``crashed``: nothing more is written for it.
    """

    writes = 0

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.writes_left: dict[str, int] = {}
        self.lost_replies: set[str] = set()
        self.crashed: set[str] = set()

    async def call(self, method: str, path: str, body: Resource | None = None, **more: Any) -> Resource:
        if method == "GET":
            return await super().call(method, path, body, **more)
        self.writes += 1
        topic = _topic_of(path, body or {})
        if topic in self.crashed:
            await asyncio.Event().wait()
        if topic in self.writes_left:
            self.writes_left[topic] -= 1
            if self.writes_left[topic] < 0:
                self.crashed.add(topic)
                if topic in self.lost_replies:
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


class StatusLeader(LeaderInMemory):
    """Use ``running_status_leader`` to run it."""

    def __init__(
        self, kubeconfig: Path, namespace: str, fleet: FakeFleet, store: Store, warm_up_us: int = 500_000
    ) -> None:
        self.cache = ResourceCache()
        super().__init__(CachedPlatform(self.cache, len(fleet.brokers)), fleet, store, warm_up_us)
        self.api = CrashingKubeApi.connect({"KUBECONFIG": str(kubeconfig)})
        self.effects.dead = self.api.crashed
        self.informer = Informer(
            api=self.api,
            cache=self.cache,
            parse_topics=lambda _: None,
            clock=clock.now,
            scopes=[WatchScope((TOPICS, SEGMENTS), namespace)],
        )
        self.namespace = namespace
        self.process = uuid.uuid4().hex
        self.reconciler: StatusReconciler | None = None
        self.events = EventRecorder(self.api, "test", self.process, clock.now)

    @property
    def status_reconciler(self) -> StatusReconciler:
        assert self.reconciler is not None
        return self.reconciler

    def managed_topic(self, topic: str) -> Any:
        return self.topics[f"{self.namespace}/{topic}"]

    def is_stable(self, topic: str) -> bool:
        """Every segment is open on running brokers, and nothing is in progress."""
        managed = self.topics.get(f"{self.namespace}/{topic}")
        if managed is None or managed.layout is None or not self.tasks.idle:
            return False
        return all(
            s.phase is Phase.OPEN
            and not s.successors
            and all(
                self.fleet.brokers[r.incarnation].living
                and (managed.layout.uid, s.name) in self.fleet.brokers[r.incarnation].held
                for r in s.replicas
            )
            for s in managed.layout.segments
        )


@asynccontextmanager
async def running_status_leader(leader: StatusLeader) -> AsyncIterator[None]:
    """Runs the leader and its projections until the block ends; then both are gone at once, as a killed process is."""
    await leader.informer.start(lambda why: None)
    leader.reconciler = status_reconciler(leader, leader.api, leader.cache, leader.events)
    running = (leader.reconciler.run(), leader.events.run(), leader.informer.run())
    tasks = [asyncio.create_task(work) for work in running]
    try:
        async with running_leader(leader):
            yield
    finally:
        leader.informer.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        leader.api.close()
