"""A leader shows its topics on a real API server: on change only, and again when a user edits or deletes it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from smq_core.scaling.segment_load import TrafficCounters, TrafficRates
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.kube.client import KubeClient, Resource
from support.kube.manifest_cases import manifest
from support.kube.status_leader import StatusLeader, running_status_leader
from support.waiting import HANG_GUARD, wait_until

pytestmark = pytest.mark.integration
API = "seaweedmq.io/v1alpha1"
IDLE = 20.0


class LeaderNamespace:
    """A namespace with fake brokers and a store, for one leader after another."""

    def __init__(self, api_server: Cluster, kube: KubeClient, namespace: str, brokers: int = 3) -> None:
        self.kube, self.namespace = kube, namespace
        self._kubeconfig = api_server.kubeconfig
        self.store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        for number in range(brokers):
            self.fleet.add(f"b{number}")

    def leader(self) -> StatusLeader:
        return StatusLeader(self._kubeconfig, self.namespace, self.fleet, self.store)

    def topic(self, name: str = "flights", **spec: Any) -> Resource:
        made = manifest({"partitions": 16} | spec, name=name)
        made["metadata"]["namespace"] = self.namespace
        return self.kube.create(made)

    async def see(self, kind: str) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self.kube.list, API, kind, self.namespace)

    async def segments(self) -> dict[str, dict[str, Any]]:
        return {s["metadata"]["name"]: s for s in await self.see("Segment")}

    async def the_topic(self) -> dict[str, Any]:
        (found,) = await self.see("Topic")
        return found

    async def events(self, reason: str) -> list[dict[str, Any]]:
        found = await asyncio.to_thread(self.kube.list, "v1", "Event", self.namespace)
        return [event for event in found if event["reason"] == reason]

    async def annotate(self, segment: str, key: str, value: str) -> None:
        resource = {"apiVersion": API, "kind": "Segment", "metadata": {"name": segment, "namespace": self.namespace}}
        change = {"metadata": {"annotations": {f"seaweedmq.io/{key}": value}}}
        await asyncio.to_thread(self.kube.patch, resource, change)


@pytest.fixture
def leader_namespace(api_server: Cluster, kube: KubeClient, namespace: str) -> LeaderNamespace:
    return LeaderNamespace(api_server, kube, namespace)


async def phases(leader_namespace: LeaderNamespace) -> dict[str, str]:
    return {name: s.get("status", {}).get("phase", "") for name, s in (await leader_namespace.segments()).items()}


async def all_open(leader_namespace: LeaderNamespace, count: int) -> dict[str, dict[str, Any]]:
    async def there() -> object:
        found = {
            n: s for n, s in (await leader_namespace.segments()).items() if s.get("status", {}).get("phase") == "Open"
        }
        return found if len(found) == count else None

    return await wait_until(there, what=f"{count} open Segments: {await phases(leader_namespace)}")


async def ready(leader_namespace: LeaderNamespace) -> dict[str, Any]:
    async def there() -> object:
        topic = await leader_namespace.the_topic()
        conditions = {c["type"]: c["status"] for c in topic.get("status", {}).get("conditions", [])}
        return topic if conditions.get("Ready") == "True" else None

    return await wait_until(there, what="the Topic is Ready")


async def test_a_topic_and_its_segments_appear_with_owners_and_events(leader_namespace: LeaderNamespace) -> None:
    topic = leader_namespace.topic(segments={"min": 2})
    async with running_status_leader(leader_namespace.leader()):
        found = await all_open(leader_namespace, 2)
        status = (await ready(leader_namespace))["status"]
        assert status["segments"] == {"pending": 0, "open": 2, "sealing": 0, "sealed": 0}
        assert status["observedGeneration"] == 1
        assert status["lastDecision"]["action"] == "Create"
        for segment in found.values():
            (owner,) = segment["metadata"]["ownerReferences"]
            assert (owner["uid"], owner["blockOwnerDeletion"]) == (topic["metadata"]["uid"], False)
            assert not segment["metadata"].get("finalizers")
            assert len(segment["status"]["brokers"]) == 2
        (event,) = await wait_until(lambda: leader_namespace.events("Create"))
        assert event["involvedObject"]["name"] == "flights" and "the topic is new" in event["message"]
    assert not (await leader_namespace.the_topic())["metadata"].get("finalizers")


async def test_what_is_edited_or_deleted_comes_back(leader_namespace: LeaderNamespace) -> None:
    leader_namespace.topic()
    async with running_status_leader(leader_namespace.leader()):
        ((name, segment),) = (await all_open(leader_namespace, 1)).items()
        await ready(leader_namespace)
        await asyncio.to_thread(leader_namespace.kube.delete, segment)

        async def resync() -> object:
            now = (await leader_namespace.segments()).get(name, segment)
            return now["metadata"]["uid"] != segment["metadata"]["uid"] and now.get("status", {}).get("phase")

        assert await wait_until(resync, "the deleted Segment is back") == "Open"
        for edit in ({"phase": "Sealed", "endOffset": 3}, {"brokers": []}):
            await asyncio.to_thread(leader_namespace.kube.patch, segment, {"status": edit}, status=True)
            await wait_until(lambda: _same(leader_namespace, name, segment["status"]), "the status of the Segment")
        orphaned = {"metadata": {"ownerReferences": []}}
        await asyncio.to_thread(leader_namespace.kube.patch, segment, orphaned)
        await wait_until(lambda: _owned(leader_namespace, name), "the owner is back")
        topic = await leader_namespace.the_topic()
        for edit in ({"brokers": 99, "segments": {"open": 50}}, {"conditions": []}):
            await asyncio.to_thread(leader_namespace.kube.patch, topic, {"status": edit}, status=True)
            await wait_until(lambda: _status_is(leader_namespace, topic["status"]), "the status of the Topic")


async def _same(leader_namespace: LeaderNamespace, name: str, status: dict[str, Any]) -> bool:
    return (await leader_namespace.segments())[name].get("status") == status


async def _owned(leader_namespace: LeaderNamespace, name: str) -> bool:
    return bool((await leader_namespace.segments())[name]["metadata"].get("ownerReferences"))


async def _status_is(leader_namespace: LeaderNamespace, status: dict[str, Any]) -> bool:
    now = (await leader_namespace.the_topic())["status"]
    verdicts = [{c["type"]: c["status"] for c in s.pop("conditions", [])} for s in (now, dict(status))]
    wanted = {key: value for key, value in status.items() if key != "conditions"}
    return now == wanted and verdicts[0] == verdicts[1]


async def test_a_forged_segment_resource_is_removed_and_one_of_no_topic_stays(
    leader_namespace: LeaderNamespace,
) -> None:
    leader_namespace.topic()
    forged = [
        {
            "apiVersion": API,
            "kind": "Segment",
            "metadata": {"name": f"{topic}-0-16-77", "namespace": leader_namespace.namespace},
            "spec": {"topic": topic, "number": 77, "range": "0-16"},
        }
        for topic in ("flights", "nothing")
    ]
    async with running_status_leader(leader_namespace.leader()):
        await all_open(leader_namespace, 1)
        for resource in forged:
            await asyncio.to_thread(leader_namespace.kube.create, resource)

        async def gone() -> object:
            return "flights-0-16-77" not in await leader_namespace.segments()

        await wait_until(gone, "the made-up Segment goes")
        assert "nothing-0-16-77" in await leader_namespace.segments()


@pytest.mark.slow
async def test_nothing_is_written_when_idle_nor_under_a_steady_load(leader_namespace: LeaderNamespace) -> None:
    for number in range(5):
        leader_namespace.topic(f"t{number}", segments={"min": 2})
    leader = leader_namespace.leader()
    async with running_status_leader(leader):
        await all_open(leader_namespace, 10)
        await wait_until(lambda: all(leader.is_stable(f"t{n}") for n in range(5)))
        await _wait_for_no_writes(leader)
        writes, calls, versions = (
            _server_writes(leader_namespace.kube),
            leader.api.writes,
            await _versions(leader_namespace),
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        steps = 0
        while loop.time() - began < IDLE:
            steps += 1
            for number in range(5):
                run = leader.managed_topic(f"t{number}")
                for segment in run.layout.segments:
                    counters = TrafficCounters(messages=1000 * steps, bytes=100_000 * steps, batches=steps)
                    run.reconciler.load.observe(segment.name, counters, leader.parts.clock())
            await asyncio.sleep(0.5)
        assert any(run.rates() != TrafficRates() for run in leader.topics.values()), "there was no load"
        assert await _versions(leader_namespace) == versions
        assert leader.api.writes == calls
        assert _server_writes(leader_namespace.kube) == writes


async def _wait_for_no_writes(leader: StatusLeader) -> None:
    """Returns when nothing was written for two seconds."""
    loop = asyncio.get_running_loop()
    last, since = leader.api.writes, loop.time()
    async with asyncio.timeout(HANG_GUARD):
        while loop.time() - since < 2.0:
            await asyncio.sleep(0.1)
            if leader.api.writes != last:
                last, since = leader.api.writes, loop.time()


async def _versions(leader_namespace: LeaderNamespace) -> dict[str, str]:
    found = await leader_namespace.see("Topic") + await leader_namespace.see("Segment")
    found += await asyncio.to_thread(leader_namespace.kube.list, "v1", "Event", leader_namespace.namespace)
    return {f"{r['kind']}/{r['metadata']['name']}": r["metadata"]["resourceVersion"] for r in found}


def _server_writes(kube: KubeClient) -> int:
    """How many writes of the project's kinds the API server has counted, by whomever.

    Without deletions: the namespaces of other tests may be on their way out.
    """
    text = kube.request("GET", "/metrics")["message"]
    lines = re.findall(r"^apiserver_request_total\{(.*)\} (\S+)$", text, re.MULTILINE)
    return sum(
        int(float(count))
        for labels, count in lines
        if 'group="seaweedmq.io"' in labels and re.search(r'verb="(POST|PUT|PATCH|APPLY)"', labels)
    )
