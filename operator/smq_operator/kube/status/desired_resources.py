"""The desired Segment resources and status of one topic. Pure.

A Segment resource has the name of its segment. This is a valid DNS name, because a topic's name is a DNS label and the
rest are digits and dashes. It is unique in the namespace, because it consists of the topic, the range and the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smq_core.model.entities import Phase, Reason, SealedSegment, Segment, SegmentEntry
from smq_operator.kube.client.kinds import SEGMENTS, TOPICS, Resource, rfc3339
from smq_operator.kube.status.condition_merge import segment_status_conditions, topic_status_conditions
from smq_operator.kube.status.resource_snapshot import ResourceSnapshot
from smq_operator.status.topic_snapshot import TopicSnapshot


@dataclass(frozen=True, slots=True)
class DesiredSegment:
    """The desired state of one Segment resource. The replicas of a sealed one stay as they were last."""

    name: str
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    sealed: bool


def owner_of(snapshot: ResourceSnapshot) -> Resource:
    """The owner reference by which a Segment is deleted with its Topic. It does not block that deletion."""
    return {
        "apiVersion": TOPICS.api_version,
        "kind": TOPICS.kind,
        "name": snapshot.topic.short_name,
        "uid": snapshot.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def segment_body(snapshot: ResourceSnapshot, desired: DesiredSegment) -> Resource:
    """The resource to create. Its status is written afterwards, because a create request ignores it."""
    metadata = {"name": desired.name, "namespace": snapshot.topic.namespace, "ownerReferences": [owner_of(snapshot)]}
    return {"apiVersion": SEGMENTS.api_version, "kind": SEGMENTS.kind, "metadata": metadata, "spec": dict(desired.spec)}


def desired_segments(
    snapshot: ResourceSnapshot, actual: Mapping[str, Resource], now: int
) -> dict[str, DesiredSegment] | None:
    """The desired Segments, or None while the layout is not known; then the actual ones stay as they are.

    ``actual`` is needed for the transition times of conditions.
    """
    topic, layout = snapshot.topic, snapshot.topic.layout
    if layout is None:
        return None

    def conditions(name: str) -> list[Resource]:
        status = actual.get(name, {}).get("status") or {}
        return segment_status_conditions(topic, name, status.get("conditions") or [], now)

    found = {entry.name: _sealed(topic, entry, conditions(entry.name)) for entry in reversed(snapshot.sealed)}
    # A segment that is still in the layout is shown as living, even if the index has it already.
    return found | {s.name: _live_segment(topic, s, conditions(s.name)) for s in layout.segments}


def topic_status(snapshot: ResourceSnapshot, current: Mapping[str, Any], now: int) -> dict[str, Any]:
    """The desired status. Fields that the leader does not know stay as in ``current``."""
    before = current.get("conditions") or []
    status: dict[str, Any] = {"conditions": topic_status_conditions(snapshot.topic, before, now)}
    if snapshot.generation is not None:
        status["observedGeneration"] = snapshot.generation
    if snapshot.topic.layout is not None:
        segments = snapshot.topic.layout.segments
        phases = [segment.phase for segment in segments]
        living = (Phase.PENDING, Phase.OPEN, Phase.SEALING)
        if snapshot.topic.layout.schemas:
            status["schemaVersion"] = snapshot.topic.layout.schemas[-1].version
        status["segments"] = {phase.value: phases.count(phase) for phase in living} | {"sealed": snapshot.sealed_count}
        status["brokers"] = len({r.broker for s in segments for r in s.replicas})
    if snapshot.decision is not None:
        status["lastDecision"] = {
            "time": rfc3339(snapshot.decision.at),
            "action": camel_case(snapshot.decision.action),
            "segments": list(snapshot.decision.segments),
            "reason": snapshot.decision.reason,
        }
    return status


def camel_case(action: str) -> str:
    """``scale out`` becomes ``ScaleOut``, the form of reasons in Kubernetes."""
    return "".join(word.capitalize() for word in action.replace("-", " ").split())


def _live_segment(topic: TopicSnapshot, segment: Segment, conditions: list[Resource]) -> DesiredSegment:
    spec = _spec(topic, segment) | {
        "replicas": [{"broker": r.broker, "incarnation": r.incarnation, "address": r.address} for r in segment.replicas]
    }
    status = _status(segment.phase, segment.successors, segment.opened_because, segment.sealed_because)
    status |= {"brokers": [r.broker for r in segment.replicas], "openedAt": rfc3339(segment.opened_at)}
    if topic.layout is not None and topic.layout.schemas:
        status["schemaVersion"] = segment.schema_version
    if conditions:
        status["conditions"] = conditions
    return DesiredSegment(segment.name, spec, status, sealed=False)


def _sealed(topic: TopicSnapshot, entry: SealedSegment, conditions: list[Resource]) -> DesiredSegment:
    status = _status(Phase.SEALED, entry.successors, entry.opened_because, entry.sealed_because)
    status |= {
        "endOffset": entry.end,
        "bytes": entry.bytes,
        "openedAt": rfc3339(entry.opened_at),
        "sealedAt": rfc3339(entry.sealed_at),
    }
    if topic.layout is not None and topic.layout.schemas:
        status["schemaVersion"] = entry.schema_version
    if entry.lost is not None:
        status["lost"] = {"start": entry.lost.start, "stop": entry.lost.stop}
        if entry.lost.at_least:
            status["lost"]["atLeast"] = True
    if conditions:
        status["conditions"] = conditions
    return DesiredSegment(entry.name, _spec(topic, entry) | {"replicas": []}, status, sealed=True)


def _spec(topic: TopicSnapshot, segment: SegmentEntry) -> dict[str, Any]:
    return {
        "topic": topic.short_name,
        "number": segment.number,
        "range": f"{segment.range.start}-{segment.range.stop}",
        "durability": segment.durability.value,
        "predecessors": list(segment.predecessors),
    }


def _status(
    phase: Phase, successors: tuple[str, ...], opened_because: Reason, sealed_because: Reason | None
) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": phase.value.capitalize(), "openedBecause": opened_because.value}
    if successors:
        status["successors"] = list(successors)
    if sealed_because is not None:
        status["sealedBecause"] = sealed_because.value
    return status
