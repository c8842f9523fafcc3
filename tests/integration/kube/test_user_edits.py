"""People meet the projections: they annotate Segments, delete Topics and Namespaces, and make them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from smq_storage.object_store.store import open_store
from support.in_memory.brokers import FakeFleet
from support.kube.client import KubeClient, Resource
from support.kube.manifest_cases import manifest
from support.kube.status_leader import StatusLeader, running_status_leader
from support.waiting import wait_until

pytestmark = pytest.mark.integration
API = "seaweedmq.io/v1alpha1"
NOTE = "example.org/note"


class EditedTopic:
    """One topic ``t`` in a namespace, and who leads it."""

    def __init__(self, api_server: Cluster, kube: KubeClient, namespace: str) -> None:
        self.kube, self.namespace = kube, namespace
        store = open_store("memory://")
        fleet = FakeFleet(store)
        for number in range(3):
            fleet.add(f"b{number}")
        self.leader = StatusLeader(api_server.kubeconfig, namespace, fleet, store)

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
def edited_topic(api_server: Cluster, kube: KubeClient, namespace: str) -> EditedTopic:
    return EditedTopic(api_server, kube, namespace)


@asynccontextmanager
async def running(edited_topic: EditedTopic, **spec: Any) -> AsyncIterator[None]:
    edited_topic.topic(**spec)
    count = spec.get("segments", {}).get("min", 1)
    async with running_status_leader(edited_topic.leader):
        await wait_until(lambda: _are(edited_topic, ["Open"] * count), what="the Segments are open")
        yield


async def _are(edited_topic: EditedTopic, phases: list[str]) -> bool:
    return sorted((await edited_topic.phases()).values()) == phases


async def _happened(edited_topic: EditedTopic, type_: str, reason: str, about: str, says: str) -> bool:
    found = await edited_topic.events()
    return any(e[:3] == (type_, reason, about) and says in e[3] for e in found)


async def _only_mine(edited_topic: EditedTopic, segment: str) -> bool:
    return (await edited_topic.segments())[segment]["metadata"].get("annotations") == {NOTE: "mine"}


async def test_a_segment_is_split_by_annotation(edited_topic: EditedTopic) -> None:
    async with running(edited_topic):
        await edited_topic.annotate("t-0-16-0", split="4")
        await wait_until(lambda: _are(edited_topic, ["Open", "Open", "Sealed"]), what="it is split")
        assert set(await edited_topic.phases()) == {"t-0-16-0", "t-0-4-1", "t-4-16-2"}
        await wait_until(lambda: _only_mine(edited_topic, "t-0-16-0"), what="the annotation is removed, another stays")
        await wait_until(lambda: _happened(edited_topic, "Normal", "RequestAccepted", "t-0-16-0", "split of t-0-16-0"))
        await wait_until(lambda: _happened(edited_topic, "Normal", "RequestCompleted", "t-0-16-0", "t-0-4-1, t-4-16-2"))
        await wait_until(lambda: _happened(edited_topic, "Normal", "Manual", "t", "manual split"))


async def test_two_segments_are_merged_by_annotation(edited_topic: EditedTopic) -> None:
    async with running(edited_topic, segments={"min": 2}):
        topic = {"apiVersion": API, "kind": "Topic", "metadata": {"name": "t", "namespace": edited_topic.namespace}}
        await edited_topic.call(edited_topic.kube.patch, topic, {"spec": {"segments": {"min": 1}}})
        await wait_until(lambda: edited_topic.leader.managed_topic("t").topic.spec.min_segments == 1)
        await edited_topic.annotate("t-8-16-1", merge="t-0-8-0")
        await wait_until(lambda: _are(edited_topic, ["Open", "Sealed", "Sealed"]), what="they are merged")


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({"split": "middle"}, "seaweedmq.io/split=true splits the segment in the middle"),
        ({"split": "16"}, "a boundary must lie inside"),
        ({"merge": "true"}, "seaweedmq.io/merge=NAME"),
        ({"accept_loss": "true"}, "there is no loss to accept"),
        ({"explode": "true"}, "Use one of"),
    ],
)
async def test_an_invalid_annotation_is_reported_and_removed(
    edited_topic: EditedTopic, annotations: dict[str, str], says: str
) -> None:
    async with running(edited_topic):
        await edited_topic.annotate("t-0-16-0", **annotations)
        await wait_until(lambda: _only_mine(edited_topic, "t-0-16-0"), what="the annotation is removed")
        await wait_until(lambda: _happened(edited_topic, "Warning", "RequestRejected", "t-0-16-0", says))
        assert await edited_topic.phases() == {"t-0-16-0": "Open"}


async def test_a_topic_that_is_made_again_has_its_own_segments(edited_topic: EditedTopic) -> None:
    """Its segments have the names of the earlier one's, which the garbage collector may not have taken yet."""

    async with running(edited_topic):
        before = (await edited_topic.segments())["t-0-16-0"]["metadata"]
        topic = {"apiVersion": API, "kind": "Topic", "metadata": {"name": "t", "namespace": edited_topic.namespace}}
        await edited_topic.call(edited_topic.kube.delete, topic)
        resync = await edited_topic.call(edited_topic.topic)

        async def own() -> bool:
            metadata = (await edited_topic.segments()).get("t-0-16-0", {"metadata": before})["metadata"]
            return metadata["ownerReferences"][0]["uid"] == resync["metadata"]["uid"]

        await wait_until(own, what="the Segment belongs to the new Topic")
        await wait_until(lambda: _are(edited_topic, ["Open"]))


async def test_a_deleted_topic_takes_its_segments_along_and_none_comes_back(edited_topic: EditedTopic) -> None:
    async with running(edited_topic, segments={"min": 3}):
        topic = {"apiVersion": API, "kind": "Topic", "metadata": {"name": "t", "namespace": edited_topic.namespace}}
        await edited_topic.call(edited_topic.kube.delete, topic)
        await wait_until(lambda: _are(edited_topic, []), "the Segments are collected")
        await wait_until(lambda: not edited_topic.leader.topics)
        assert not await edited_topic.segments()


@pytest.mark.slow
async def test_a_namespace_ends_while_the_leader_lives(edited_topic: EditedTopic) -> None:
    async with running(edited_topic, segments={"min": 3}):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": edited_topic.namespace}}
        await edited_topic.call(edited_topic.kube.delete, namespace)

        async def gone() -> bool:
            return await edited_topic.call(edited_topic.kube.find, namespace) is None

        await wait_until(gone, "the Namespace is gone")
