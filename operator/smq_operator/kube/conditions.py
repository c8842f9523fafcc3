"""The conditions of a Topic and of a Segment: what is, why, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from smq_core.model import Durability
from smq_operator.kube.facts import Place, TopicFacts
from smq_operator.kube.kinds import Resource
from smq_operator.kube.times import rfc3339

LONGEST = 1000
"""Characters of a message; what does not fit is counted."""
OURS = (
    *("Ready", "Balanced", "HotPartition", "DataLoss", "SealBlocked"),
    *("ManifestRefused", "AutoscalingPaused", "RetentionHeld"),
)
"""The first ones are always there, the others from when they were true first."""
BAD = ("HotPartition", "DataLoss", "SealBlocked", "ManifestRefused")
"""Those that are a warning when they are true."""


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: str
    reason: str
    message: str


def topic_conditions(facts: TopicFacts, before: Sequence[Resource], now: int) -> list[Resource]:
    """All conditions of a Topic's status. What others wrote under types of their own stays.

    ``before`` is what the status has; ``now`` in microseconds becomes the time of those whose status changes.
    """
    known = {condition.get("type"): condition for condition in before}
    wanted = [_ready(facts, known.get("Ready")), _balanced(facts), _hot(facts), _lost(facts), _blocked(facts)]
    wanted += (condition for condition in _now_and_then(facts) if condition.status == "True" or condition.type in known)
    foreign = [condition for condition in before if condition.get("type") not in OURS]
    return [dated(condition, known.get(condition.type), now) for condition in wanted] + foreign


def segment_conditions(facts: TopicFacts, segment: str, before: Sequence[Resource], now: int) -> list[Resource]:
    """Those of a Segment's status: only what is, or was, blocked."""
    known = {condition.get("type"): condition for condition in before}
    blocked = dict(facts.trouble.blocked).get(segment)
    found = [condition for condition in before if condition.get("type") != "SealBlocked"]
    if blocked is not None:
        told = Condition("SealBlocked", "True", "ReplicasUnreachable", _short(_block(segment, blocked)))
        found.append(dated(told, known.get("SealBlocked"), now))
    elif "SealBlocked" in known:
        told = Condition("SealBlocked", "False", "NotBlocked", "its seal goes on")
        found.append(dated(told, known["SealBlocked"], now))
    return found


def dated(condition: Condition, before: Resource | None, now: int) -> Resource:
    """As the API has it; its time is that of the last change of its status."""
    same = before is not None and before.get("status") == condition.status and before.get("lastTransitionTime")
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": same or rfc3339(now),
    }


def _now_and_then(facts: TopicFacts) -> list[Condition]:
    refused = paused = held = None
    if facts.refused is not None:
        refused = Condition("ManifestRefused", "True", "InvalidManifest", _short(facts.refused))
    if facts.paused:
        message = (
            "load changes no segments; failover, drains, rolls and requests go on, until the annotation "
            "seaweedmq.io/autoscaling is removed"
        )
        paused = Condition("AutoscalingPaused", "True", "Asked", message)
    if facts.unread_by:
        message = (
            f"segments beyond spec.retention stay, because groups have still to read them ({_list(facts.unread_by)}): "
            "let them read, or set retention.unread: Expire"
        )
        held = Condition("RetentionHeld", "True", "UnreadByGroups", _short(message))
    return [
        refused or Condition("ManifestRefused", "False", "Followed", "the spec is followed"),
        paused or Condition("AutoscalingPaused", "False", "NotAsked", "segments follow the load"),
        held or Condition("RetentionHeld", "False", "NoneHeld", "no segment stays longer than spec.retention says"),
    ]


def _ready(facts: TopicFacts, before: Resource | None) -> Condition:
    if facts.layout is None:
        if before is not None and before.get("status") in ("True", "Unknown"):
            why = facts.waits_for or "the leader has not read the topic's layout from the filer yet"
            return Condition("Ready", "Unknown", "LayoutUnread", _short(f"{why}; brokers go on with what they hold"))
        why = facts.waits_for or facts.refused or "no broker is there to hold its segments: are the broker Pods ready?"
        return Condition("Ready", "False", "Waiting", _short(why))
    trouble = facts.trouble
    if trouble.blocked:
        message = "not every partition accepts messages: " + _list(_block(*block) for block in trouble.blocked)
        return Condition("Ready", "False", "SealBlocked", _short(message))
    if trouble.away:
        message = f"{_places(trouble.away)}: no answer, and no other broker has taken over yet"
        return Condition("Ready", "False", "BrokerAway", _short(message))
    return Condition("Ready", "True", "Accepting", "every partition accepts messages")


def _balanced(facts: TopicFacts) -> Condition:
    if facts.layout is None:
        return Condition("Balanced", "Unknown", "Waiting", "there are no segments yet")
    if facts.spec.durability is Durability.REPLICATED:
        living = [s for s in facts.layout.segments if not s.successors]
        if single := [s.name for s in living if s.durability is Durability.STORED]:
            message = "too few brokers for replicas, acks wait for the filer: " + _list(single)
            return Condition("Balanced", "False", "StoredInstead", _short(message))
        if fewer := [s.name for s in living if len(s.replicas) < facts.spec.replicas]:
            message = f"too few brokers for {facts.spec.replicas} replicas: " + _list(fewer)
            return Condition("Balanced", "False", "FewBrokers", _short(message))
    if facts.trouble.draining:
        message = f"on their way off brokers that are being drained: {_places(facts.trouble.draining)}"
        return Condition("Balanced", "False", "Draining", _short(message))
    return Condition("Balanced", "True", "Balanced", "replicas are where they should be")


def _hot(facts: TopicFacts) -> Condition:
    if not facts.trouble.hot:
        return Condition("HotPartition", "False", "NoneHot", "no partition alone is above target")
    spots = _list(f"partition {partition} ({segment})" for segment, partition in sorted(facts.trouble.hot))
    message = f"above target alone, and cannot be split; more keys would spread the load: {spots}"
    return Condition("HotPartition", "True", "CannotSplit", _short(message))


def _lost(facts: TopicFacts) -> Condition:
    if not facts.lost:
        return Condition("DataLoss", "False", "NothingLost", "no acked message was lost")
    ranges = (f"{e.name}: offsets {e.lost_from} to {e.lost_to}" for e in sorted(facts.lost, key=lambda e: -e.number))
    return Condition("DataLoss", "True", "ReplicasGone", _short(_list(ranges)))


def _blocked(facts: TopicFacts) -> Condition:
    blocked = facts.trouble.blocked
    if not blocked:
        return Condition("SealBlocked", "False", "NotBlocked", "no seal waits for a broker")
    message = _list(_block(segment, brokers) for segment, brokers in sorted(blocked))
    return Condition("SealBlocked", "True", "ReplicasUnreachable", _short(message))


def _block(segment: str, brokers: Sequence[str]) -> str:
    return (
        f"{segment}: no replica answers and none is proved gone ({', '.join(brokers)}); bring one back, delete its Pod "
        f"or node, or give up what only they hold: kubectl annotate segment {segment} seaweedmq.io/accept-loss=true"
    )


def _places(places: Iterable[Place]) -> str:
    by_broker: dict[str, list[str]] = {}
    for place in sorted(places, key=lambda p: (p.broker, p.segment)):
        by_broker.setdefault(place.broker, []).append(place.segment)
    return "; ".join(f"broker {broker} of {_list(segments)}" for broker, segments in by_broker.items())


def _list(words: Iterable[str], shown: int = 5) -> str:
    every = list(words)
    more = f" and {len(every) - shown} more" if len(every) > shown else ""
    return ", ".join(every[:shown]) + more


def _short(message: str) -> str:
    return message if len(message) <= LONGEST else message[: LONGEST - 1] + "…"
