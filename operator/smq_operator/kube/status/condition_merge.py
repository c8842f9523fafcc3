"""Conditions as the API server has them: with the time of their last transition, beside those that others set. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from smq_operator.kube.client.kinds import Resource, rfc3339
from smq_operator.status.topic_conditions import (
    OPTIONAL_TYPES,
    Commands,
    Condition,
    ConditionStatus,
    segment_blocked,
    topic_conditions,
)
from smq_operator.status.topic_snapshot import TopicSnapshot

KUBECTL = Commands(
    restore="bring one back, delete its Pod or node",
    accept_loss=lambda _, segment: f"kubectl annotate segment {segment} seaweedmq.io/accept-loss=true",
    resume=lambda _, topic: f"remove the annotation: kubectl annotate topic {topic} seaweedmq.io/autoscaling-",
)


def topic_status_conditions(snapshot: TopicSnapshot, before: Sequence[Resource], now: int) -> list[Resource]:
    """The conditions of a Topic's status. ``before`` is what the status has, ``now`` the time in microseconds."""
    known = {condition.get("type") for condition in before}
    conditions = [
        condition
        for condition in topic_conditions(snapshot, KUBECTL)
        if condition.type not in OPTIONAL_TYPES or condition.type in known or condition.status is ConditionStatus.TRUE
    ]
    return _merge(conditions, before, now)


def segment_status_conditions(
    snapshot: TopicSnapshot, segment: str, before: Sequence[Resource], now: int
) -> list[Resource]:
    """The conditions of a Segment's status. ``SealBlocked`` is there once its seal has been blocked."""
    blocked = segment_blocked(snapshot, segment, KUBECTL)
    shown = blocked.status is ConditionStatus.TRUE or any(condition.get("type") == blocked.type for condition in before)
    return _merge([blocked] if shown else [], before, now)


def _merge(conditions: Iterable[Condition], before: Sequence[Resource], now: int) -> list[Resource]:
    """These conditions, and after them those of ``before`` that have other types."""
    known = {condition.get("type"): condition for condition in before}
    updated = [_with_transition_time(condition, known.get(condition.type), now) for condition in conditions]
    types = {condition["type"] for condition in updated}
    return updated + [condition for condition in before if condition.get("type") not in types]


def _with_transition_time(condition: Condition, before: Resource | None, now: int) -> Resource:
    """The time is that of the last change of the condition's status."""
    same = before is not None and before.get("status") == condition.status and before.get("lastTransitionTime")
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": same or rfc3339(now),
    }
