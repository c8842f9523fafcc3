"""Writes the status of topics, handles the annotations of Segments, and records Events about both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import structlog

from smq_operator.kube.client.errors import NotFound
from smq_operator.kube.client.events import EventRecorder, KubeEvent, ObjectReference
from smq_operator.kube.client.kinds import SEGMENTS, TOPICS, Kind, Resource, resource_version_of
from smq_operator.kube.informer.cache import ResourceCache
from smq_operator.kube.segment_annotations import annotations_of, handle_annotation
from smq_operator.kube.status.diff import Create, Delete, PatchMetadata, PatchStatus, Write
from smq_operator.reconcile.manual_requests import ManualRequests
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.status.topic_conditions import WARNING_TYPES, ConditionStatus, ConditionType

log = structlog.get_logger(__name__)


class StatusApi(Protocol):
    """The part of ``KubeApi`` that the status writer needs."""

    async def create(self, kind: Kind, body: Resource) -> Resource: ...

    async def patch(
        self, kind: Kind, name: str, namespace: str, change: Resource, subresource: str = ""
    ) -> Resource: ...

    async def patch_status(self, kind: Kind, name: str, namespace: str, status: Resource) -> Resource: ...

    async def delete(self, kind: Kind, name: str, namespace: str = "", uid: str | None = None) -> None: ...


class StatusWriter:
    """Puts each response into the cache at once, so that nothing is written twice. Raises KubeError."""

    def __init__(self, api: StatusApi, cache: ResourceCache, events: EventRecorder) -> None:
        self._api = api
        self._cache = cache
        self._events = events
        self._ignored_writes: dict[tuple[Kind, str, str], tuple[int, Write]] = {}
        """Writes that the API server accepted without effect, with the version of the resource."""
        self.written = 0
        """How many writes the API server accepted."""

    async def write(self, write: Write) -> None:
        match write:
            case Create(body, status):
                made = await self._api.create(SEGMENTS, body)
                self._record_write(SEGMENTS, made)
                metadata = made["metadata"]
                after = await self._api.patch_status(SEGMENTS, metadata["name"], metadata["namespace"], status)
                self._record_write(SEGMENTS, after)
            case PatchStatus():
                await self._patch_status(write)
            case PatchMetadata(namespace, name, change):
                after = await self._api.patch(SEGMENTS, name, namespace, {"metadata": change})
                self._record_write(SEGMENTS, after)
            case Delete(resource, reason):
                await self._delete(resource, reason)

    async def _patch_status(self, write: PatchStatus) -> None:
        kind, namespace, name = write.kind, write.namespace, write.name
        before = self._cache.of(kind).get((namespace, name), {})
        if self._ignored_writes.get((kind, namespace, name)) == (resource_version_of(before), write):
            return
        after = await self._api.patch_status(kind, name, namespace, write.change)
        if resource_version_of(after) == resource_version_of(before):
            if len(self._ignored_writes) > 10_000:
                self._ignored_writes.clear()
            self._ignored_writes[kind, namespace, name] = (resource_version_of(before), write)
            log.warning(
                "status.write_ignored",
                kind=kind.kind,
                name=name,
                fields=sorted(write.change),
                advice="the CustomResourceDefinitions are older than this operator: upgrade the chart",
            )
        self._record_write(kind, after)
        if kind is TOPICS:
            for event in new_warnings(before, after):
                self._events.record(event)

    async def _delete(self, resource: Resource, reason: str) -> None:
        metadata = resource["metadata"]
        log.info("segment_resource.deleted", name=metadata["name"], namespace=metadata["namespace"], reason=reason)
        try:
            await self._api.delete(SEGMENTS, metadata["name"], metadata["namespace"], metadata["uid"])
            self.written += 1
        except NotFound:
            log.debug("segment_resource.already_deleted", name=metadata["name"])
        if not metadata.get("finalizers"):  # else the watch reports its deletion later
            self._cache.drop(SEGMENTS, resource)

    async def handle_annotations(
        self, requests: ManualRequests, managed: ManagedTopic, actual: Mapping[str, Resource]
    ) -> bool:
        """Handles the requests in annotations of Segments; True while some are pending."""
        waiting = False
        for name, resource in actual.items():
            if "deletionTimestamp" in resource["metadata"]:
                continue
            done: dict[str, None] = {}
            for key, value in annotations_of(resource).items():
                answer = handle_annotation(requests, managed, name, key, value)
                waiting = waiting or not answer.remove
                if answer.remove:
                    done[key] = None
                if answer.message:
                    reason = (
                        "RequestRejected"
                        if answer.rejected
                        else "RequestCompleted"
                        if answer.remove
                        else "RequestAccepted"
                    )
                    involved_object = ObjectReference.of(SEGMENTS, resource)
                    self._events.record(KubeEvent(involved_object, reason, answer.message, warning=answer.rejected))
            if done:
                # Conditional on the version, so that a newer annotation is handled before it is removed.
                change = {"resourceVersion": resource["metadata"]["resourceVersion"], "annotations": done}
                await self.write(PatchMetadata(resource["metadata"]["namespace"], name, change))
        return waiting

    def _record_write(self, kind: Kind, resource: Resource) -> None:
        self.written += 1
        self._cache.put(kind, resource)


def new_warnings(before: Resource, after: Resource) -> list[KubeEvent]:
    """Warnings for the conditions of a Topic that have become bad, or are bad for another reason."""
    known = {c["type"]: c for c in (before.get("status") or {}).get("conditions") or []}
    found = []
    for condition in (after.get("status") or {}).get("conditions") or []:
        old = known.get(condition["type"], {})
        same = (old.get("status"), old.get("message")) == (condition["status"], condition["message"])
        is_warning = condition["type"] in WARNING_TYPES and condition["status"] != ConditionStatus.FALSE
        not_ready_reason = condition["type"] == ConditionType.READY and condition["status"] == ConditionStatus.FALSE
        if (is_warning or not_ready_reason) and not same:
            reason = "NotReady" if not_ready_reason else condition["type"]
            found.append(KubeEvent(ObjectReference.of(TOPICS, after), reason, condition["message"], warning=True))
    return found
