"""The difference between what the API server shall show and what it shows, as the writes that end it. Pure.

Whatever was edited is put back, whatever was deleted is made again. Of the Segments that say they are of a topic, only
those of its layout and its newest sealed ones stay; Segments of a Topic that is not there are not touched: the garbage
collector takes those that had one. Labels, annotations and conditions that others set stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from smq_operator.kube.facts import TopicFacts
from smq_operator.kube.kinds import SEGMENTS, TOPICS, Kind, Resource
from smq_operator.kube.resources import Shown, body_of, owner_of, shown_segments, topic_status

STATUS_OF_TOPIC = ("observedGeneration", "conditions", "segments", "brokers", "lastDecision")
STATUS_OF_SEGMENT = (
    *("phase", "brokers", "successors", "endOffset", "bytes", "openedBecause", "sealedBecause", "openedAt"),
    *("sealedAt", "lost", "conditions"),
)


@dataclass(frozen=True, slots=True)
class Create:
    """Make this resource, and then write its status."""

    body: Resource
    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Change these fields of a status; None removes one."""

    kind: Kind
    namespace: str
    name: str
    change: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PatchMetadata:
    """Change these fields of a Segment's metadata; None removes one."""

    namespace: str
    name: str
    change: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove this Segment, unless another has its name by now."""

    resource: Resource
    why: str


Write: TypeAlias = Create | PatchStatus | PatchMetadata | Delete


def writes(facts: TopicFacts, topic: Resource, have: Mapping[str, Resource], now: int) -> list[Write]:
    """What to write, in this order, so that the Topic ``topic`` and the Segments that name it are as they shall be."""
    found: list[Write] = []
    shown = shown_segments(facts, have, now)
    if shown is not None:
        found += _segments(facts, shown, have)
    before = topic.get("status") or {}
    change = changes(topic_status(facts, before, now), before, ())
    if change:
        found.append(PatchStatus(TOPICS, facts.namespace, facts.short_name, change))
    return found


def _segments(facts: TopicFacts, shown: Mapping[str, Shown], have: Mapping[str, Resource]) -> list[Write]:
    found: list[Write] = []
    for name, want in shown.items():
        resource = have.get(name)
        if resource is None:
            found.append(Create(body_of(facts, want), dict(want.status)))
        elif "deletionTimestamp" in resource["metadata"]:
            continue  # it is made again when it has gone
        elif _belongs_to_another(facts, resource):
            found.append(Delete(resource, "it belongs to an earlier Topic of this name"))
        elif not _same_spec(want, resource.get("spec") or {}):
            found.append(Delete(resource, "its spec, which cannot be changed, is not the segment's"))
        else:
            if not any(_is_owner(facts, owner) for owner in resource["metadata"].get("ownerReferences", ())):
                found.append(PatchMetadata(facts.namespace, name, {"ownerReferences": [owner_of(facts)]}))
            change = changes(want.status, resource.get("status") or {}, STATUS_OF_SEGMENT)
            if change:
                found.append(PatchStatus(SEGMENTS, facts.namespace, name, change))
    for name, resource in have.items():
        if name not in shown and "deletionTimestamp" not in resource["metadata"]:
            found.append(Delete(resource, "the topic has no such segment, or has too many newer ones to show"))
    return found


def changes(want: Mapping[str, Any], have: Mapping[str, Any], ours: tuple[str, ...]) -> dict[str, Any]:
    """The merge patch from one status to another. Fields of ``ours`` that are not wanted are removed."""
    change = {key: value for key, value in want.items() if have.get(key) != value}
    change |= {key: None for key in ours if key in have and key not in want}
    for key, value in change.items():
        # A merge patch merges objects: what is in the old one and not in the new one has to be named.
        if isinstance(value, dict) and isinstance(have.get(key), dict):
            change[key] = {inner: None for inner in have[key] if inner not in value} | value
    return change


def _same_spec(want: Shown, have: Mapping[str, Any]) -> bool:
    """Whether it is that segment. Fields that an older definition does not have are passed over."""
    passed = {"replicas"} if want.sealed else set()
    return all(have[key] == value for key, value in want.spec.items() if key in have and key not in passed)


def _is_owner(facts: TopicFacts, owner: Resource) -> bool:
    return owner.get("uid") == facts.uid and owner.get("controller") is True


def _belongs_to_another(facts: TopicFacts, resource: Resource) -> bool:
    owners = resource["metadata"].get("ownerReferences", ())
    return any(owner.get("controller") and owner.get("uid") != facts.uid for owner in owners)
