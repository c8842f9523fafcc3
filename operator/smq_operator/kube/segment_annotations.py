"""Manual requests as annotations of a Segment: what each annotation requests, and what to write if one is invalid.

An annotation stays until its request is completed or rejected, so that the next leader continues if this one stops.
Then it is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from smq_core.errors import InvalidRequest, SmqError
from smq_core.model.entities import Reason
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_operator.kube.client.kinds import Resource
from smq_operator.reconcile.manual_requests import ManualRequests
from smq_operator.reconcile.topics.managed_topic import ManagedTopic

PREFIX = "seaweedmq.io/"
SPLIT, MERGE, MOVE, ROLL, ACCEPT_LOSS = (PREFIX + word for word in ("split", "merge", "move", "roll", "accept-loss"))
HELP = {
    SPLIT: f"{SPLIT}=true splits the segment in the middle, {SPLIT}=512 at that partition, {SPLIT}=256,512 in three",
    MERGE: f"{MERGE}=NAME merges it with its neighbour, the Segment of that name",
    MOVE: f"{MOVE}=true continues its range on other brokers",
    ROLL: f"{ROLL}=true seals it and continues its range in a new segment",
    ACCEPT_LOSS: f"{ACCEPT_LOSS}=true completes a blocked seal without what only its replicas hold",
}


@dataclass(frozen=True, slots=True)
class AcceptLoss:
    """The request to complete the blocked seal of this segment without its replicas."""

    segment: str


@dataclass(frozen=True, slots=True)
class InvalidAnnotation:
    """``advice`` says what to write instead."""

    advice: str


AnnotationRequest: TypeAlias = SegmentChange | AcceptLoss | InvalidAnnotation


@dataclass(frozen=True, slots=True)
class AnnotationResult:
    """Whether to remove an annotation or to keep it for later. ``message``, if any, becomes an Event."""

    remove: bool
    message: str = ""
    rejected: bool = False


PENDING = AnnotationResult(remove=False)


def annotations_of(resource: Resource) -> Mapping[str, str]:
    """The annotations that are requests: all with the project's prefix, since no Segment has others with it."""
    found = resource["metadata"].get("annotations") or {}
    return {key: value for key, value in found.items() if key.startswith(PREFIX)}


def parse_annotation(segment: str, key: str, value: str) -> AnnotationRequest:
    """The request of one annotation of this segment."""
    value = value.strip()
    if key == SPLIT and value == "true":
        return SegmentChange(SegmentAction.SPLIT, (segment,))
    if key == SPLIT:
        numbers = [part.strip() for part in value.split(",")]
        if all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
            return SegmentChange(SegmentAction.SPLIT, (segment,), tuple(int(number) for number in numbers))
    elif key == MERGE and value and value not in ("true", segment):
        return SegmentChange(SegmentAction.MERGE, (segment, *(part.strip() for part in value.split(","))))
    elif key == MOVE and value == "true":
        return SegmentChange(SegmentAction.MOVE, (segment,))
    elif key == ROLL and value == "true":
        return SegmentChange(SegmentAction.ROLL, (segment,))
    elif key == ACCEPT_LOSS and value == "true":
        return AcceptLoss(segment)
    if key in HELP:
        return InvalidAnnotation(f"{key}={value} is invalid: {HELP[key]}")
    return InvalidAnnotation(f"{key} is no annotation of a Segment. Use one of: {'; '.join(HELP.values())}")


def handle_annotation(
    requests: ManualRequests, managed: ManagedTopic, segment: str, key: str, value: str
) -> AnnotationResult:
    """Submits the request of an annotation to the leader. Call it again until the result says to remove it."""
    wanted = parse_annotation(segment, key, value)
    if isinstance(wanted, InvalidAnnotation):
        return AnnotationResult(remove=True, message=wanted.advice, rejected=True)
    if managed.reconciler is None or managed.layout is None:
        return PENDING
    try:
        if isinstance(wanted, AcceptLoss):
            return _accept(requests, managed, segment)
        if managed.reconciler.requests.is_requested(wanted):
            return PENDING
        found = managed.layout.segment(segment) if segment in managed.layout else managed.index.sealed.get(segment)
        if found is not None and found.sealed_because is Reason.MANUAL:
            successor_names = ", ".join(found.successors)
            return AnnotationResult(
                remove=True, message=f"{segment} was sealed as requested; its partitions continue in {successor_names}"
            )
        requests.submit(managed.name, wanted)
    except SmqError as error:
        return AnnotationResult(remove=True, message=f"{key}={value}: {error.message}. {HELP[key]}", rejected=True)
    return AnnotationResult(remove=False, message=f"the {wanted.action} of {', '.join(wanted.segments)} is requested")


def _accept(requests: ManualRequests, managed: ManagedTopic, segment: str) -> AnnotationResult:
    leader, layout = managed.reconciler, managed.layout
    assert leader is not None and layout is not None
    if segment in managed.index.sealed or leader.outcome(segment) is not None:
        return AnnotationResult(remove=True, message=f"{segment} is sealed")
    if segment in layout and layout.segment(segment).loss_accepted:
        return AnnotationResult(
            remove=True, message=f"the layout records that {segment} is sealed without its replicas"
        )
    if leader.is_loss_accepted(segment):
        return PENDING
    try:
        requests.accept_loss(managed.name, segment)
    except InvalidRequest:
        if segment in layout and layout.segment(segment).successors:
            return PENDING  # a new leader starts its seal in a moment
        raise
    return AnnotationResult(
        remove=False, message=f"the seal of {segment} continues without what only its replicas hold"
    )
