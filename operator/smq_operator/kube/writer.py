"""Carries out the writes of a projection, does what annotations ask for, and tells people of both what matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import structlog

from smq_operator.kube.annotations import annotations_of, follow
from smq_operator.kube.cache import Cache
from smq_operator.kube.conditions import BAD
from smq_operator.kube.errors import NotFound
from smq_operator.kube.events import About, EventWriter, Happened
from smq_operator.kube.kinds import SEGMENTS, TOPICS, Kind, Resource, version_of
from smq_operator.kube.projection import Create, Delete, PatchMetadata, PatchStatus, Write
from smq_operator.loop import LeaderLoop
from smq_operator.topic import TopicRun

log = structlog.get_logger()


class Calls(Protocol):
    """The part of ``KubeApi`` that projections need."""

    async def create(self, kind: Kind, body: Resource) -> Resource: ...

    async def patch(self, kind: Kind, name: str, namespace: str, change: Resource, part: str = "") -> Resource: ...

    async def patch_status(self, kind: Kind, name: str, namespace: str, status: Resource) -> Resource: ...

    async def delete(self, kind: Kind, name: str, namespace: str = "", uid: str | None = None) -> None: ...


class Writer:
    """What the API server answers goes to the cache at once, so that nothing is written twice. Raises KubeError."""

    def __init__(self, api: Calls, cache: Cache, events: EventWriter) -> None:
        self._api = api
        self._cache = cache
        self._events = events
        self._futile: dict[tuple[Kind, str, str], tuple[int, Write]] = {}
        """Writes that the API server took without doing them, at that version of the resource."""
        self.written = 0
        """How many writes the API server took."""

    async def write(self, write: Write) -> None:
        match write:
            case Create(body, status):
                made = await self._api.create(SEGMENTS, body)
                self._took(SEGMENTS, made)
                metadata = made["metadata"]
                after = await self._api.patch_status(SEGMENTS, metadata["name"], metadata["namespace"], status)
                self._took(SEGMENTS, after)
            case PatchStatus():
                await self._patch_status(write)
            case PatchMetadata(namespace, name, change):
                after = await self._api.patch(SEGMENTS, name, namespace, {"metadata": change})
                self._took(SEGMENTS, after)
            case Delete(resource, why):
                await self._delete(resource, why)

    async def _patch_status(self, write: PatchStatus) -> None:
        kind, namespace, name = write.kind, write.namespace, write.name
        before = self._cache.of(kind).get((namespace, name), {})
        if self._futile.get((kind, namespace, name)) == (version_of(before), write):
            return
        after = await self._api.patch_status(kind, name, namespace, write.change)
        if version_of(after) == version_of(before):
            if len(self._futile) > 10_000:
                self._futile.clear()
            self._futile[kind, namespace, name] = (version_of(before), write)
            log.warning(
                "projection.ignored",
                kind=kind.kind,
                name=name,
                fields=sorted(write.change),
                advice="the CustomResourceDefinitions are older than this operator: upgrade the chart",
            )
        self._took(kind, after)
        if kind is TOPICS:
            for event in turned_bad(before, after):
                self._events.tell(event)

    async def _delete(self, resource: Resource, why: str) -> None:
        metadata = resource["metadata"]
        log.info("segment.resource.removed", name=metadata["name"], namespace=metadata["namespace"], why=why)
        try:
            await self._api.delete(SEGMENTS, metadata["name"], metadata["namespace"], metadata["uid"])
            self.written += 1
        except NotFound:
            log.debug("segment.resource.gone", name=metadata["name"])
        if not metadata.get("finalizers"):  # else it stays for a while, and the watch will tell
            self._cache.drop(SEGMENTS, resource)

    async def follow_annotations(self, loop: LeaderLoop, run: TopicRun, have: Mapping[str, Resource]) -> bool:
        """Does what people ask for by annotations of Segments; True while some wait for something."""
        waiting = False
        for name, resource in have.items():
            if "deletionTimestamp" in resource["metadata"]:
                continue
            done: dict[str, None] = {}
            for key, value in annotations_of(resource).items():
                answer = follow(loop, run, name, key, value)
                waiting = waiting or not answer.remove
                if answer.remove:
                    done[key] = None
                if answer.message:
                    reason = "Refused" if answer.refused else "Done" if answer.remove else "Asked"
                    about = About.of(SEGMENTS, resource)
                    self._events.tell(Happened(about, reason, answer.message, warning=answer.refused))
            if done:
                # On condition of the version: what was written meanwhile is looked at before it is removed.
                change = {"resourceVersion": resource["metadata"]["resourceVersion"], "annotations": done}
                await self.write(PatchMetadata(resource["metadata"]["namespace"], name, change))
        return waiting

    def _took(self, kind: Kind, resource: Resource) -> None:
        self.written += 1
        self._cache.put(kind, resource)


def turned_bad(before: Resource, after: Resource) -> list[Happened]:
    """The warnings that a change of a Topic's status is worth: of what is bad now, and was not so before."""
    known = {c["type"]: c for c in (before.get("status") or {}).get("conditions") or []}
    found = []
    for condition in (after.get("status") or {}).get("conditions") or []:
        old = known.get(condition["type"], {})
        same = (old.get("status"), old.get("message")) == (condition["status"], condition["message"])
        bad = condition["type"] in BAD and condition["status"] == "True"
        not_ready = condition["type"] == "Ready" and condition["status"] == "False"
        if (bad or not_ready) and not same:
            reason = "NotReady" if not_ready else condition["type"]
            found.append(Happened(About.of(TOPICS, after), reason, condition["message"], warning=True))
    return found
