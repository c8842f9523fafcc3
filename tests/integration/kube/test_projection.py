"""A leader shows its topics on a real API server: on change only, and again when somebody edits or deletes it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from smq_core.load import Counters, Rates
from smq_storage.store import open_store
from support.bad_manifests import manifest
from support.fake_fleet import FakeFleet
from support.kube import Kube, Resource
from support.leader_in_memory import until
from support.shown import ShownLeader, showing

pytestmark = pytest.mark.integration
API = "seaweedmq.io/v1alpha1"
AT_REST = 20.0


class Scene:
    """A namespace with fake brokers and a store, for one leader after another."""

    def __init__(self, api_server: Cluster, kube: Kube, namespace: str, brokers: int = 3) -> None:
        self.kube, self.namespace = kube, namespace
        self._kubeconfig = api_server.kubeconfig
        self.store = open_store("memory://")
        self.fleet = FakeFleet(self.store)
        for number in range(brokers):
            self.fleet.add(f"b{number}")

    def leader(self) -> ShownLeader:
        return ShownLeader(self._kubeconfig, self.namespace, self.fleet, self.store)

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
def scene(api_server: Cluster, kube: Kube, namespace: str) -> Scene:
    return Scene(api_server, kube, namespace)


async def seen(condition: Callable[[], Awaitable[object]], timeout: float = 20.0, what: str = "") -> Any:
    """The first true answer."""
    last: object = None
    try:
        async with asyncio.timeout(timeout):
            while not (last := await condition()):
                await asyncio.sleep(0.1)
            return last
    except TimeoutError:
        raise AssertionError(f"not within {timeout} s: {what or condition}; last: {last}") from None


async def phases(scene: Scene) -> dict[str, str]:
    return {name: s.get("status", {}).get("phase", "") for name, s in (await scene.segments()).items()}


async def all_open(scene: Scene, count: int) -> dict[str, dict[str, Any]]:
    async def there() -> object:
        found = {n: s for n, s in (await scene.segments()).items() if s.get("status", {}).get("phase") == "Open"}
        return found if len(found) == count else None

    return await seen(there, what=f"{count} open Segments: {await phases(scene)}")


async def ready(scene: Scene) -> dict[str, Any]:
    async def there() -> object:
        topic = await scene.the_topic()
        conditions = {c["type"]: c["status"] for c in topic.get("status", {}).get("conditions", [])}
        return topic if conditions.get("Ready") == "True" else None

    return await seen(there, what="the Topic is Ready")


def test_a_topic_and_its_segments_appear_with_owners_and_events(scene: Scene) -> None:
    async def main() -> None:
        topic = scene.topic(segments={"min": 2})
        async with showing(scene.leader()):
            found = await all_open(scene, 2)
            status = (await ready(scene))["status"]
            assert status["segments"] == {"pending": 0, "open": 2, "sealing": 0, "sealed": 0}
            assert status["observedGeneration"] == 1
            assert status["lastDecision"]["action"] == "Create"
            for segment in found.values():
                (owner,) = segment["metadata"]["ownerReferences"]
                assert (owner["uid"], owner["blockOwnerDeletion"]) == (topic["metadata"]["uid"], False)
                assert not segment["metadata"].get("finalizers")
                assert len(segment["status"]["brokers"]) == 2
            (event,) = await seen(lambda: scene.events("Create"))
            assert event["involvedObject"]["name"] == "flights" and "the topic is new" in event["message"]
        assert not (await scene.the_topic())["metadata"].get("finalizers")

    asyncio.run(main())


def test_what_is_edited_or_deleted_comes_back(scene: Scene) -> None:
    async def main() -> None:
        scene.topic()
        async with showing(scene.leader()):
            ((name, segment),) = (await all_open(scene, 1)).items()
            await ready(scene)
            await asyncio.to_thread(scene.kube.delete, segment)

            async def again() -> object:
                now = (await scene.segments()).get(name, segment)
                return now["metadata"]["uid"] != segment["metadata"]["uid"] and now.get("status", {}).get("phase")

            assert await seen(again, 20, "the deleted Segment is back") == "Open"
            for edit in ({"phase": "Sealed", "endOffset": 3}, {"brokers": []}):
                await asyncio.to_thread(scene.kube.patch, segment, {"status": edit}, status=True)
                await seen(lambda: _same(scene, name, segment["status"]), 20, "the status of the Segment")
            orphaned = {"metadata": {"ownerReferences": []}}
            await asyncio.to_thread(scene.kube.patch, segment, orphaned)
            await seen(lambda: _owned(scene, name), 20, "the owner is back")
            topic = await scene.the_topic()
            for edit in ({"brokers": 99, "segments": {"open": 50}}, {"conditions": []}):
                await asyncio.to_thread(scene.kube.patch, topic, {"status": edit}, status=True)
                await seen(lambda: _status_is(scene, topic["status"]), 20, "the status of the Topic")

    asyncio.run(main())


async def _same(scene: Scene, name: str, status: dict[str, Any]) -> bool:
    return (await scene.segments())[name].get("status") == status


async def _owned(scene: Scene, name: str) -> bool:
    return bool((await scene.segments())[name]["metadata"].get("ownerReferences"))


async def _status_is(scene: Scene, status: dict[str, Any]) -> bool:
    now = (await scene.the_topic())["status"]
    verdicts = [{c["type"]: c["status"] for c in s.pop("conditions", [])} for s in (now, dict(status))]
    wanted = {key: value for key, value in status.items() if key != "conditions"}
    return now == wanted and verdicts[0] == verdicts[1]


def test_a_segment_that_somebody_makes_up_goes_and_one_of_no_topic_stays(scene: Scene) -> None:
    async def main() -> None:
        scene.topic()
        forged = [
            {
                "apiVersion": API,
                "kind": "Segment",
                "metadata": {"name": f"{topic}-0-16-77", "namespace": scene.namespace},
                "spec": {"topic": topic, "number": 77, "range": "0-16"},
            }
            for topic in ("flights", "nothing")
        ]
        async with showing(scene.leader()):
            await all_open(scene, 1)
            for resource in forged:
                await asyncio.to_thread(scene.kube.create, resource)

            async def gone() -> object:
                return "flights-0-16-77" not in await scene.segments()

            await seen(gone, 20, "the made-up Segment goes")
            assert "nothing-0-16-77" in await scene.segments()

    asyncio.run(main())


def test_nothing_is_written_at_rest_nor_under_a_steady_load(scene: Scene) -> None:
    async def main() -> None:
        for number in range(5):
            scene.topic(f"t{number}", segments={"min": 2})
        leader = scene.leader()
        async with showing(leader):
            await all_open(scene, 10)
            await until(lambda: all(leader.is_quiet(f"t{n}") for n in range(5)))
            await _calm(leader)
            writes, calls, versions = _server_writes(scene.kube), leader.api.writes, await _versions(scene)
            loop = asyncio.get_running_loop()
            began = loop.time()
            steps = 0
            while loop.time() - began < AT_REST:
                steps += 1
                for number in range(5):
                    run = leader.run_of(f"t{number}")
                    for segment in run.layout.segments:
                        counters = Counters(messages=1000 * steps, bytes=100_000 * steps, batches=steps)
                        run.leader.load.observe(segment.name, counters, leader.loop.now())
                await asyncio.sleep(0.5)
            assert any(run.rates() != Rates() for run in leader.loop.topics.values()), "there was no load"
            assert await _versions(scene) == versions
            assert leader.api.writes == calls
            assert _server_writes(scene.kube) == writes

    asyncio.run(main())


async def _calm(leader: ShownLeader) -> None:
    """Returns when nothing was written for two seconds."""
    loop = asyncio.get_running_loop()
    last, since = leader.api.writes, loop.time()
    async with asyncio.timeout(20):
        while loop.time() - since < 2.0:
            await asyncio.sleep(0.1)
            if leader.api.writes != last:
                last, since = leader.api.writes, loop.time()


async def _versions(scene: Scene) -> dict[str, str]:
    found = await scene.see("Topic") + await scene.see("Segment")
    found += await asyncio.to_thread(scene.kube.list, "v1", "Event", scene.namespace)
    return {f"{r['kind']}/{r['metadata']['name']}": r["metadata"]["resourceVersion"] for r in found}


def _server_writes(kube: Kube) -> int:
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
