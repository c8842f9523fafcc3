"""Computes the writes that turn the actual resources of a topic into the desired ones. Pure.

These writes revert edits and recreate deleted resources. Of the Segments that name the topic, only those of its layout
and the newest sealed ones stay. Segments of a Topic that does not exist are left to the garbage collector of
Kubernetes. Labels, annotations and conditions that others set stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from smq_operator.kube.client.kinds import SEGMENTS, TOPICS, Kind, Resource
from smq_operator.kube.status.desired_resources import (
    DesiredSegment,
    desired_segments,
    owner_of,
    segment_body,
    topic_status,
)
from smq_operator.kube.status.resource_snapshot import ResourceSnapshot

TOPIC_STATUS_FIELDS = ("observedGeneration", "conditions", "segments", "brokers", "lastDecision")
SEGMENT_STATUS_FIELDS = (
    *("phase", "brokers", "successors", "endOffset", "bytes", "openedBecause", "sealedBecause", "openedAt"),
    *("sealedAt", "lost", "conditions"),
)


@dataclass(frozen=True, slots=True)
class Create:
    """Create this resource, then write its status."""

    body: Resource
    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Change these fields of a status; None removes a field."""

    kind: Kind
    namespace: str
    name: str
    change: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PatchMetadata:
    """Change these fields of a Segment's metadata; None removes a field."""

    namespace: str
    name: str
    change: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete this Segment, unless another one has its name by now."""

    resource: Resource
    reason: str


Write: TypeAlias = Create | PatchStatus | PatchMetadata | Delete


def compute_writes(
    snapshot: ResourceSnapshot, topic: Resource, actual: Mapping[str, Resource], now: int
) -> list[Write]:
    """The writes, in order, that bring the Topic ``topic`` and the Segments that name it to the desired state."""
    found: list[Write] = []
    desired = desired_segments(snapshot, actual, now)
    if desired is not None:
        found += _segments(snapshot, desired, actual)
    before = topic.get("status") or {}
    change = merge_patch(topic_status(snapshot, before, now), before, ())
    if change:
        found.append(PatchStatus(TOPICS, snapshot.topic.namespace, snapshot.topic.short_name, change))
    return found


def _segments(
    snapshot: ResourceSnapshot, desired: Mapping[str, DesiredSegment], actual: Mapping[str, Resource]
) -> list[Write]:
    found: list[Write] = []
    for name, wanted in desired.items():
        resource = actual.get(name)
        if resource is None:
            found.append(Create(segment_body(snapshot, wanted), dict(wanted.status)))
        elif "deletionTimestamp" in resource["metadata"]:
            continue  # it is recreated once it is gone
        elif _belongs_to_another(snapshot, resource):
            found.append(Delete(resource, "it belongs to an earlier Topic of this name"))
        elif not _same_spec(wanted, resource.get("spec") or {}):
            found.append(Delete(resource, "its immutable spec differs from the segment's"))
        else:
            if not any(_is_owner(snapshot, owner) for owner in resource["metadata"].get("ownerReferences", ())):
                found.append(PatchMetadata(snapshot.topic.namespace, name, {"ownerReferences": [owner_of(snapshot)]}))
            change = merge_patch(wanted.status, resource.get("status") or {}, SEGMENT_STATUS_FIELDS)
            if change:
                found.append(PatchStatus(SEGMENTS, snapshot.topic.namespace, name, change))
    for name, resource in actual.items():
        if name not in desired and "deletionTimestamp" not in resource["metadata"]:
            found.append(Delete(resource, "the topic has no such segment, or too many newer sealed ones"))
    return found


def merge_patch(
    wanted: Mapping[str, Any], actual: Mapping[str, Any], managed_fields: tuple[str, ...]
) -> dict[str, Any]:
    """The merge patch from one status to another. It removes ``managed_fields`` that are not wanted."""
    change = {key: value for key, value in wanted.items() if actual.get(key) != value}
    change |= {key: None for key in managed_fields if key in actual and key not in wanted}
    for key, value in change.items():
        # A merge patch merges objects, so it must name each key that only the old one has.
        if isinstance(value, dict) and isinstance(actual.get(key), dict):
            change[key] = {inner: None for inner in actual[key] if inner not in value} | value
    return change


def _same_spec(wanted: DesiredSegment, actual: Mapping[str, Any]) -> bool:
    """Whether the specs match. Fields that an older definition lacks are ignored."""
    ignored_fields = {"replicas"} if wanted.sealed else set()
    return all(
        actual[key] == value for key, value in wanted.spec.items() if key in actual and key not in ignored_fields
    )


def _is_owner(snapshot: ResourceSnapshot, owner: Resource) -> bool:
    return owner.get("uid") == snapshot.uid and owner.get("controller") is True


def _belongs_to_another(snapshot: ResourceSnapshot, resource: Resource) -> bool:
    owners = resource["metadata"].get("ownerReferences", ())
    return any(owner.get("controller") and owner.get("uid") != snapshot.uid for owner in owners)
