"""The leader's whole state is in the resources and the filer: it may die at any write, and another goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from smq_core.invariants import ring_is_covered
from smq_operator.kube import events, projector
from smq_operator.kube.annotations import annotations_of
from smq_operator.kube.facts import Trouble, facts_of
from smq_operator.kube.projection import writes
from smq_storage.store import open_store
from support.bad_manifests import manifest
from support.fake_fleet import FakeFleet
from support.kube import Kube
from support.leader_in_memory import until
from support.shown import ShownLeader, showing

pytestmark = [pytest.mark.integration, pytest.mark.slow]
API = "seaweedmq.io/v1alpha1"
WRITES = 14
"""More than any of the stories needs, so that the last ones are not cut short."""
STARTS_WITH = {"split": 1, "merge": 2, "failover": 1}
ENDS_WITH = {"split": 2, "merge": 1, "failover": 1}


class Scene:
    """Topics ``n0``, ``n1``, … of which the leader dies before so many writes, and ``u0``, … of which after them."""

    def __init__(self, kubeconfig: Any, kube: Kube, namespace: str, story: str) -> None:
        self.kube, self.namespace, self.story = kube, namespace, story
        self._kubeconfig = kubeconfig
        self.store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        for name in ("b0", "b1"):
            self.fleet.add(name)
        self.topics = [f"{how}{number}" for how in "nu" for number in range(WRITES)]
        for name in self.topics:
            made = manifest({"partitions": 16, "segments": {"min": STARTS_WITH[story]}}, name=name)
            made["metadata"]["namespace"] = namespace
            kube.create(made)

    def leader(self) -> ShownLeader:
        return ShownLeader(self._kubeconfig, self.namespace, self.fleet, self.store)

    def list(self, kind: str) -> dict[str, dict[str, Any]]:
        return {r["metadata"]["name"]: r for r in self.kube.list(API, kind, self.namespace)}

    async def allow(self, leader: ShownLeader) -> None:
        """Fewer segments are as good: else what is merged would be split again."""
        for resource in (await asyncio.to_thread(self.list, "Topic")).values():
            await asyncio.to_thread(self.kube.patch, resource, {"spec": {"segments": {"min": 1}}})
        await until(lambda: all(leader.run_of(name).topic.spec.min_segments == 1 for name in self.topics), 20)

    async def begin(self, leader: ShownLeader) -> None:
        """Asks for a split or a merge of every topic by annotation, or kills a broker."""
        if self.story == "failover":
            for name in ("b2", "b3"):
                self.fleet.add(name)
            victim = next(b for b in self.fleet.brokers.values() if b.replica.broker == "b0")
            victim.living = False
            leader.world.dead[victim.replica.incarnation] = "killed by the test"
            leader.loop.kick()
            return
        for name in self.topics:
            run = leader.run_of(name)
            first = run.layout.segments[0].name
            value = "true" if self.story == "split" else run.layout.segments[1].name
            change = {"metadata": {"annotations": {f"seaweedmq.io/{self.story}": value}}}
            metadata = {"name": first, "namespace": self.namespace}
            resource = {"apiVersion": API, "kind": "Segment", "metadata": metadata}
            await asyncio.to_thread(self.kube.patch, resource, change)

    def is_done(self, leader: ShownLeader, name: str) -> bool:
        run = leader.loop.topics.get(f"{self.namespace}/{name}")
        if run is None or run.layout is None:
            return False
        segments = run.layout.segments
        brokers = {r.incarnation for s in segments for r in s.replicas}
        changed = bool(run.sealed) or self.story == "failover"
        return (
            changed
            and len(segments) == ENDS_WITH[self.story]
            and all(s.phase.value == "open" and not s.successors for s in segments)
            and all(self.fleet.brokers[incarnation].living for incarnation in brokers)
        )

    async def wrong(self, leader: ShownLeader, names: Iterable[str]) -> list[str]:
        """What the API server does not show as it should of these topics; asked of the API server itself."""
        topics, segments = await asyncio.to_thread(self.list, "Topic"), await asyncio.to_thread(self.list, "Segment")
        wrong = [f"{name}: not done" for name in names if not self.is_done(leader, name)]
        for name in names:
            run, topic = leader.run_of(name), topics[name]
            have = {key: value for key, value in segments.items() if value["spec"]["topic"] == name}
            metadata = topic["metadata"]
            facts = facts_of(run, metadata["generation"], metadata["uid"], Trouble(), None)
            wrong += [f"{name}: {write}" for write in writes(facts, topic, have, leader.loop.now())]
            wrong += [f"{key}: annotated still" for key, value in have.items() if annotations_of(value)]
            if run.layout is not None and ring_is_covered(run.layout):
                wrong.append(f"{name}: the ring is not covered")
        return wrong


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A topic whose leader is dead keeps its place, which in a real process nobody would miss."""
    monkeypatch.setattr(projector, "PARALLEL", 4 * WRITES)
    monkeypatch.setattr(events, "PARALLEL", 4 * WRITES)
    yield


@pytest.mark.parametrize("story", ["split", "merge", "failover"])
def test_a_leader_may_die_at_any_write(api_server: Cluster, kube: Kube, namespace: str, room: None, story: str) -> None:
    async def main() -> None:
        scene = Scene(api_server.kubeconfig, kube, namespace, story)
        first = scene.leader()
        async with showing(first):
            await until(lambda: all(first.is_quiet(name) for name in scene.topics), 30, "the topics are open")
            await scene.allow(first)
            await _calm(first)
            for name in scene.topics:
                first.api.left[f"{namespace}/{name}"] = int(name[1:])
            first.api.unheard.update(f"{namespace}/{name}" for name in scene.topics if name[0] == "u")
            await scene.begin(first)
            await _shown(scene, first)
            dead = len(first.api.dead)
        second = scene.leader()
        second.world.dead.update(first.world.dead)
        async with showing(second):
            await _shown(scene, second)
            await _calm(second)
        assert dead >= 12, f"the leader died at {dead} writes only"

    asyncio.run(main())


async def _shown(scene: Scene, leader: ShownLeader) -> None:
    """Returns when all topics are done, and shown as they are; but for those whose leader died."""
    wrong: list[str] = []
    try:
        async with asyncio.timeout(45):
            while True:
                alive = [name for name in scene.topics if f"{scene.namespace}/{name}" not in leader.api.dead]
                if not (wrong := await scene.wrong(leader, alive)):
                    return
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"it is not done, or not shown: {wrong[:5]}") from None


async def _calm(leader: ShownLeader) -> None:
    """Returns when nothing was written for two seconds."""
    loop = asyncio.get_running_loop()
    last, since = leader.api.writes, loop.time()
    async with asyncio.timeout(30):
        while loop.time() - since < 2.0:
            await asyncio.sleep(0.1)
            if leader.api.writes != last:
                last, since = leader.api.writes, loop.time()
