"""What the API server shall show of one topic: its Segment resources and its status. Pure.

A Segment resource has the segment's own name. That is a DNS name, since a topic's is a label and the rest are digits
and dashes; and no two topics of a namespace can have the same one, since the last three numbers are the range and the
count, and what stands before them is the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smq_core.model import Phase, Reason, SealedSegment, Segment
from smq_operator.kube.conditions import segment_conditions, topic_conditions
from smq_operator.kube.facts import TopicFacts
from smq_operator.kube.kinds import SEGMENTS, TOPICS, Resource
from smq_operator.kube.times import rfc3339


@dataclass(frozen=True, slots=True)
class Shown:
    """One Segment resource as it shall be. A sealed one's replicas are no more known: they stay what they were."""

    name: str
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    sealed: bool


def owner_of(facts: TopicFacts) -> Resource:
    """The reference by which a Segment goes with its Topic; it never holds the Topic back."""
    return {
        "apiVersion": TOPICS.api,
        "kind": TOPICS.kind,
        "name": facts.short_name,
        "uid": facts.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def body_of(facts: TopicFacts, shown: Shown) -> Resource:
    """The resource to create. Its status is written afterwards: creating does not take it."""
    metadata = {"name": shown.name, "namespace": facts.namespace, "ownerReferences": [owner_of(facts)]}
    return {"apiVersion": SEGMENTS.api, "kind": SEGMENTS.kind, "metadata": metadata, "spec": dict(shown.spec)}


def shown_segments(facts: TopicFacts, have: Mapping[str, Resource], now: int) -> dict[str, Shown] | None:
    """The Segments that shall be there, or None while the layout is not known: then they stay as they are.

    ``have`` are those that are there: a condition's time depends on what it was.
    """
    layout = facts.layout
    if layout is None:
        return None

    def conditions(name: str) -> list[Resource]:
        status = have.get(name, {}).get("status") or {}
        return segment_conditions(facts, name, status.get("conditions") or [], now)

    found = {entry.name: _sealed(facts, entry, conditions(entry.name)) for entry in reversed(facts.sealed)}
    # What is in the layout still is shown as such, though the index may have it already.
    return found | {s.name: _living(facts, s, conditions(s.name)) for s in layout.segments}


def topic_status(facts: TopicFacts, before: Mapping[str, Any], now: int) -> dict[str, Any]:
    """The status that shall be there. ``before`` is the one that is; what the leader does not know stays of it."""
    status: dict[str, Any] = {"conditions": topic_conditions(facts, before.get("conditions") or [], now)}
    if facts.generation is not None:
        status["observedGeneration"] = facts.generation
    if facts.layout is not None:
        phases = [segment.phase for segment in facts.layout.segments]
        living = (Phase.PENDING, Phase.OPEN, Phase.SEALING)
        status["segments"] = {phase.value: phases.count(phase) for phase in living} | {"sealed": facts.sealed_count}
        status["brokers"] = len({r.broker for s in facts.layout.segments for r in s.replicas})
    if facts.decision is not None:
        status["lastDecision"] = {
            "time": rfc3339(facts.decision.at),
            "action": action_word(facts.decision.action),
            "segments": list(facts.decision.segments),
            "reason": facts.decision.reason,
        }
    return status


def action_word(action: str) -> str:
    """``scale out`` becomes ``ScaleOut``, as reasons are written in Kubernetes."""
    return "".join(word.capitalize() for word in action.replace("-", " ").split())


def _living(facts: TopicFacts, segment: Segment, conditions: list[Resource]) -> Shown:
    spec = _spec(facts, segment) | {
        "replicas": [{"broker": r.broker, "incarnation": r.incarnation, "address": r.address} for r in segment.replicas]
    }
    status = _status(segment.phase, segment.successors, segment.opened_because, segment.sealed_because)
    status |= {"brokers": [r.broker for r in segment.replicas], "openedAt": rfc3339(segment.opened_at)}
    if conditions:
        status["conditions"] = conditions
    return Shown(segment.name, spec, status, sealed=False)


def _sealed(facts: TopicFacts, entry: SealedSegment, conditions: list[Resource]) -> Shown:
    status = _status(Phase.SEALED, entry.successors, entry.opened_because, entry.sealed_because)
    status |= {
        "endOffset": entry.end,
        "bytes": entry.bytes,
        "openedAt": rfc3339(entry.opened_at),
        "sealedAt": rfc3339(entry.sealed_at),
    }
    if entry.lost_from is not None and entry.lost_to is not None:
        status["lost"] = {"from": entry.lost_from, "to": entry.lost_to}
    if conditions:
        status["conditions"] = conditions
    return Shown(entry.name, _spec(facts, entry) | {"replicas": []}, status, sealed=True)


def _spec(facts: TopicFacts, segment: Segment | SealedSegment) -> dict[str, Any]:
    return {
        "topic": facts.short_name,
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
