"""The leader's whole state is in the resources and the filer: it may die at any write, and another one continues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from smq_core.invariants import ring_is_covered
from smq_operator.kube.client import events
from smq_operator.kube.segment_annotations import annotations_of
from smq_operator.kube.status import reconciler
from smq_operator.kube.status.diff import compute_writes
from smq_operator.kube.status.resource_snapshot import resource_snapshot_of
from smq_operator.status.health import HealthIssues
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.kube.client import KubeClient
from support.kube.manifest_cases import manifest
from support.kube.status_leader import StatusLeader, running_status_leader
from support.waiting import HANG_GUARD, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]
API = "seaweedmq.io/v1alpha1"
# More than any of the stories needs, so that the last ones are not cut short.
WRITES = 14
STARTS_WITH = {"split": 1, "merge": 2, "failover": 1}
ENDS_WITH = {"split": 2, "merge": 1, "failover": 1}


class InterruptedWrites:
    """Topics ``n0``, ``n1``, … of which the leader dies before that write, and ``u0``, … of which after them."""

    def __init__(self, kubeconfig: Any, kube: KubeClient, namespace: str, story: str) -> None:
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

    def leader(self) -> StatusLeader:
        return StatusLeader(self._kubeconfig, self.namespace, self.fleet, self.store)

    def list(self, kind: str) -> dict[str, dict[str, Any]]:
        return {r["metadata"]["name"]: r for r in self.kube.list(API, kind, self.namespace)}

    async def allow(self, leader: StatusLeader) -> None:
        """Fewer segments are as good: else what is merged would be split again."""
        for resource in (await asyncio.to_thread(self.list, "Topic")).values():
            await asyncio.to_thread(self.kube.patch, resource, {"spec": {"segments": {"min": 1}}})
        await wait_until(lambda: all(leader.managed_topic(name).topic.spec.min_segments == 1 for name in self.topics))

    async def begin(self, leader: StatusLeader) -> None:
        """Requests a split or a merge of every topic by annotation, or kills a broker."""
        if self.story == "failover":
            for name in ("b2", "b3"):
                self.fleet.add(name)
            victim = next(b for b in self.fleet.brokers.values() if b.replica.broker == "b0")
            victim.living = False
            leader.platform.terminated[victim.replica.incarnation] = "killed by the test"
            leader.queue.enqueue()
            return
        for name in self.topics:
            run = leader.managed_topic(name)
            first = run.layout.segments[0].name
            value = "true" if self.story == "split" else run.layout.segments[1].name
            change = {"metadata": {"annotations": {f"seaweedmq.io/{self.story}": value}}}
            metadata = {"name": first, "namespace": self.namespace}
            resource = {"apiVersion": API, "kind": "Segment", "metadata": metadata}
            await asyncio.to_thread(self.kube.patch, resource, change)

    def is_done(self, leader: StatusLeader, name: str) -> bool:
        run = leader.topics.get(f"{self.namespace}/{name}")
        if run is None or run.layout is None:
            return False
        segments = run.layout.segments
        brokers = {r.incarnation for s in segments for r in s.replicas}
        changed = bool(run.index.sealed) or self.story == "failover"
        return (
            changed
            and len(segments) == ENDS_WITH[self.story]
            and all(s.phase.value == "open" and not s.successors for s in segments)
            and all(self.fleet.brokers[incarnation].living for incarnation in brokers)
        )

    async def wrong(self, leader: StatusLeader, names: Iterable[str]) -> list[str]:
        """What the API server does not show as it should of these topics; asked of the API server itself."""
        topics, segments = await asyncio.to_thread(self.list, "Topic"), await asyncio.to_thread(self.list, "Segment")
        wrong = [f"{name}: not done" for name in names if not self.is_done(leader, name)]
        for name in names:
            run, topic = leader.managed_topic(name), topics[name]
            actual = {key: value for key, value in segments.items() if value["spec"]["topic"] == name}
            metadata = topic["metadata"]
            snapshot = resource_snapshot_of(run, metadata["generation"], metadata["uid"], HealthIssues(), None)
            wrong += [f"{name}: {write}" for write in compute_writes(snapshot, topic, actual, leader.parts.clock())]
            wrong += [f"{key}: annotated still" for key, value in actual.items() if annotations_of(value)]
            if run.layout is not None and ring_is_covered(run.layout):
                wrong.append(f"{name}: the ring is not covered")
        return wrong


@pytest.fixture
def unlimited_parallelism(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A topic whose leader is dead keeps its place, which in a real process nobody would miss."""
    monkeypatch.setattr(reconciler, "MAX_CONCURRENT", 4 * WRITES)
    monkeypatch.setattr(events, "MAX_CONCURRENT", 4 * WRITES)
    yield


@pytest.mark.parametrize("story", ["split", "merge", "failover"])
async def test_a_leader_may_die_at_any_write(
    api_server: Cluster, kube: KubeClient, namespace: str, unlimited_parallelism: None, story: str
) -> None:
    interrupted_writes = InterruptedWrites(api_server.kubeconfig, kube, namespace, story)
    first = interrupted_writes.leader()
    async with running_status_leader(first):
        await wait_until(
            lambda: all(first.is_stable(name) for name in interrupted_writes.topics), "the topics are open"
        )
        await interrupted_writes.allow(first)
        await _wait_for_no_writes(first)
        for name in interrupted_writes.topics:
            first.api.writes_left[f"{namespace}/{name}"] = int(name[1:])
        first.api.lost_replies.update(f"{namespace}/{name}" for name in interrupted_writes.topics if name[0] == "u")
        await interrupted_writes.begin(first)
        await _shown(interrupted_writes, first)
        dead = len(first.api.crashed)
    second = interrupted_writes.leader()
    second.platform.terminated.update(first.platform.terminated)
    async with running_status_leader(second):
        await _shown(interrupted_writes, second)
        await _wait_for_no_writes(second)
    # How many writes there are depends on how many changes one write shows.
    assert dead >= 6, f"the leader died at {dead} writes only"


async def _shown(interrupted_writes: InterruptedWrites, leader: StatusLeader) -> None:
    """Returns when all topics are done, and shown as they are; but for those whose leader died."""
    wrong: list[str] = []
    try:
        async with asyncio.timeout(HANG_GUARD):
            while True:
                alive = [
                    name
                    for name in interrupted_writes.topics
                    if f"{interrupted_writes.namespace}/{name}" not in leader.api.crashed
                ]
                if not (wrong := await interrupted_writes.wrong(leader, alive)):
                    return
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"it is not done, or not shown: {wrong[:5]}") from None


async def _wait_for_no_writes(leader: StatusLeader) -> None:
    """Returns when nothing was written for two seconds."""
    loop = asyncio.get_running_loop()
    last, since = leader.api.writes, loop.time()
    async with asyncio.timeout(HANG_GUARD):
        while loop.time() - since < 2.0:
            await asyncio.sleep(0.1)
            if leader.api.writes != last:
                last, since = leader.api.writes, loop.time()
