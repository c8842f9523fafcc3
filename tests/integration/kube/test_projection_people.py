"""People meet the projections: they annotate Segments, delete Topics and Namespaces, and make them again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from smq_storage.store import open_store
from support.bad_manifests import manifest
from support.fake_fleet import FakeFleet
from support.kube import Kube, Resource
from support.leader_in_memory import until
from support.shown import ShownLeader, showing

pytestmark = pytest.mark.integration
API = "seaweedmq.io/v1alpha1"
NOTE = "example.org/note"


class Scene:
    """One topic ``t`` in a namespace, and who leads it."""

    def __init__(self, api_server: Cluster, kube: Kube, namespace: str) -> None:
        self.kube, self.namespace = kube, namespace
        store = open_store("memory://")
        fleet = FakeFleet(store)
        for number in range(3):
            fleet.add(f"b{number}")
        self.leader = ShownLeader(api_server.kubeconfig, namespace, fleet, store)

    def topic(self, **spec: Any) -> Resource:
        made = manifest({"partitions": 16} | spec, name="t")
        made["metadata"]["namespace"] = self.namespace
        return self.kube.create(made)

    async def call(self, method: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        return await asyncio.to_thread(method, *arguments, **more)

    async def segments(self) -> dict[str, dict[str, Any]]:
        found = await self.call(self.kube.list, API, "Segment", self.namespace)
        return {s["metadata"]["name"]: s for s in found}

    async def phases(self) -> dict[str, str]:
        return {name: s.get("status", {}).get("phase", "") for name, s in (await self.segments()).items()}

    async def events(self) -> list[tuple[str, str, str, str]]:
        """Type, reason, about whom, message."""
        found = await self.call(self.kube.list, "v1", "Event", self.namespace)
        return [(e["type"], e["reason"], e["involvedObject"]["name"], e["message"]) for e in found]

    async def annotate(self, segment: str, **annotations: str) -> None:
        resource = {"apiVersion": API, "kind": "Segment", "metadata": {"name": segment, "namespace": self.namespace}}
        written = {f"seaweedmq.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        await self.call(self.kube.patch, resource, {"metadata": {"annotations": written | {NOTE: "mine"}}})


@pytest.fixture
def scene(api_server: Cluster, kube: Kube, namespace: str) -> Scene:
    return Scene(api_server, kube, namespace)


async def seen(condition: Callable[[], Awaitable[object]], timeout: float = 20.0, what: str = "") -> None:
    try:
        async with asyncio.timeout(timeout):
            while not await condition():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {timeout} s: {what or condition}") from None


def run(scene: Scene, work: Callable[[], Awaitable[None]], **spec: Any) -> None:
    async def main() -> None:
        scene.topic(**spec)
        count = spec.get("segments", {}).get("min", 1)
        async with showing(scene.leader):
            await seen(lambda: _are(scene, ["Open"] * count), what="the Segments are open")
            await work()

    asyncio.run(main())


async def _are(scene: Scene, phases: list[str]) -> bool:
    return sorted((await scene.phases()).values()) == phases


async def _happened(scene: Scene, type_: str, reason: str, about: str, says: str) -> bool:
    found = await scene.events()
    return any(e[:3] == (type_, reason, about) and says in e[3] for e in found)


async def _only_mine(scene: Scene, segment: str) -> bool:
    return (await scene.segments())[segment]["metadata"].get("annotations") == {NOTE: "mine"}


def test_a_segment_is_split_by_annotation(scene: Scene) -> None:
    async def work() -> None:
        await scene.annotate("t-0-16-0", split="4")
        await seen(lambda: _are(scene, ["Open", "Open", "Sealed"]), what="it is split")
        assert set(await scene.phases()) == {"t-0-16-0", "t-0-4-1", "t-4-16-2"}
        await seen(lambda: _only_mine(scene, "t-0-16-0"), what="the annotation is removed, another stays")
        await seen(lambda: _happened(scene, "Normal", "Asked", "t-0-16-0", "split of t-0-16-0"))
        await seen(lambda: _happened(scene, "Normal", "Done", "t-0-16-0", "t-0-4-1, t-4-16-2"))
        await seen(lambda: _happened(scene, "Normal", "Manual", "t", "split asked for by hand"))

    run(scene, work)


def test_two_segments_are_merged_by_annotation(scene: Scene) -> None:
    async def work() -> None:
        topic = {"apiVersion": API, "kind": "Topic", "metadata": {"name": "t", "namespace": scene.namespace}}
        await scene.call(scene.kube.patch, topic, {"spec": {"segments": {"min": 1}}})
        await until(lambda: scene.leader.run_of("t").topic.spec.min_segments == 1)
        await scene.annotate("t-8-16-1", merge="t-0-8-0")
        await seen(lambda: _are(scene, ["Open", "Sealed", "Sealed"]), what="they are merged")

    run(scene, work, segments={"min": 2})


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({"split": "middle"}, "seaweedmq.io/split=true cuts the segment in the middle"),
        ({"split": "16"}, "a boundary must lie inside"),
        ({"merge": "true"}, "seaweedmq.io/merge=NAME"),
        ({"accept_loss": "true"}, "there is no loss to accept"),
        ({"explode": "true"}, "What can be written"),
    ],
)
def test_nonsense_is_told_and_removed(scene: Scene, annotations: dict[str, str], says: str) -> None:
    async def work() -> None:
        await scene.annotate("t-0-16-0", **annotations)
        await seen(lambda: _only_mine(scene, "t-0-16-0"), what="the annotation is removed")
        await seen(lambda: _happened(scene, "Warning", "Refused", "t-0-16-0", says))
        assert await scene.phases() == {"t-0-16-0": "Open"}

    run(scene, work)


def test_a_topic_that_is_made_again_has_its_own_segments(scene: Scene) -> None:
    """Its segments have the names of the earlier one's, which the garbage collector may not have taken yet."""

    async def work() -> None:
        before = (await scene.segments())["t-0-16-0"]["metadata"]
        topic = {"apiVersion": API, "kind": "Topic", "metadata": {"name": "t", "namespace": scene.namespace}}
        await scene.call(scene.kube.delete, topic)
        again = await scene.call(scene.topic)

        async def own() -> bool:
            metadata = (await scene.segments()).get("t-0-16-0", {"metadata": before})["metadata"]
            return metadata["ownerReferences"][0]["uid"] == again["metadata"]["uid"]

        await seen(own, what="the Segment belongs to the new Topic")
        await seen(lambda: _are(scene, ["Open"]))

    run(scene, work)


def test_a_deleted_topic_takes_its_segments_along_and_none_comes_back(scene: Scene) -> None:
    async def work() -> None:
        topic = {"apiVersion": API, "kind": "Topic", "metadata": {"name": "t", "namespace": scene.namespace}}
        await scene.call(scene.kube.delete, topic)
        await seen(lambda: _are(scene, []), 40, "the Segments are collected")
        await until(lambda: not scene.leader.loop.topics)
        assert not await scene.segments()

    run(scene, work, segments={"min": 3})


def test_a_namespace_ends_while_the_leader_lives(scene: Scene) -> None:
    async def work() -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scene.namespace}}
        await scene.call(scene.kube.delete, namespace)

        async def gone() -> bool:
            return await scene.call(scene.kube.find, namespace) is None

        await seen(gone, 60, "the Namespace is gone")

    run(scene, work, segments={"min": 3})
