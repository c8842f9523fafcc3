"""The conditions of topics and segments: what holds, why, and what to do about it. Pure.

``smq topic describe`` and the status of a Topic resource show the result of the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from smq_core.model.entities import Durability
from smq_operator.status.health import AffectedReplica, describe_outage
from smq_operator.status.topic_snapshot import TopicSnapshot

# In characters; longer messages are cut.
MAX_MESSAGE_LENGTH = 1000


class ConditionType(StrEnum):
    """What a condition is about."""

    READY = "Ready"
    FILER_AVAILABLE = "FilerAvailable"
    BALANCED = "Balanced"
    HOT_PARTITION = "HotPartition"
    DATA_LOSS = "DataLoss"
    SEAL_BLOCKED = "SealBlocked"
    JOURNAL_FAILED = "JournalFailed"
    SPEC_REJECTED = "SpecRejected"
    AUTOSCALING_PAUSED = "AutoscalingPaused"
    RETENTION_BLOCKED = "RetentionBlocked"
    QUOTAS_IGNORED = "QuotasIgnored"


class ConditionStatus(StrEnum):
    """Whether a condition holds, as Kubernetes writes it."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


# Types that are a warning unless they are false.
WARNING_TYPES = (
    ConditionType.HOT_PARTITION,
    ConditionType.DATA_LOSS,
    ConditionType.SEAL_BLOCKED,
    ConditionType.JOURNAL_FAILED,
    ConditionType.SPEC_REJECTED,
    ConditionType.QUOTAS_IGNORED,
)
# Types that a resource shows only once they have been true.
OPTIONAL_TYPES = (
    ConditionType.JOURNAL_FAILED,
    ConditionType.SPEC_REJECTED,
    ConditionType.AUTOSCALING_PAUSED,
    ConditionType.RETENTION_BLOCKED,
    ConditionType.QUOTAS_IGNORED,
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as Kubernetes defines it, without the time of its last transition."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Commands:
    """What messages advise, with the commands of the tool that shows them.

    ``restore``: how to unblock a seal without a loss. ``accept_loss`` takes a namespace and a segment, ``resume`` a
    namespace and a topic.
    """

    restore: str
    accept_loss: Callable[[str, str], str]
    resume: Callable[[str, str], str]


def topic_conditions(snapshot: TopicSnapshot, commands: Commands) -> list[Condition]:
    """All conditions of a topic, true or not."""
    return [
        _ready(snapshot, commands),
        _filer_available(snapshot),
        _balanced(snapshot),
        _hot_partition(snapshot),
        _data_loss(snapshot),
        _seal_blocked(snapshot, commands),
        _journal_failed(snapshot),
        _spec_rejected(snapshot),
        _autoscaling_paused(snapshot, commands),
        _retention_blocked(snapshot),
        _quotas_ignored(snapshot),
    ]


def segment_blocked(snapshot: TopicSnapshot, segment: str, commands: Commands) -> Condition:
    """The condition ``SealBlocked`` of one segment."""
    brokers = dict(snapshot.issues.blocked).get(segment)
    if brokers is None:
        return Condition(
            ConditionType.SEAL_BLOCKED, ConditionStatus.FALSE, "NotBlocked", "no unreachable broker blocks its seal"
        )
    message = _blocked_message(snapshot, segment, brokers, commands)
    return _condition(ConditionType.SEAL_BLOCKED, ConditionStatus.TRUE, _blocked_reason(snapshot, brokers), message)


def _ready(snapshot: TopicSnapshot, commands: Commands) -> Condition:
    if snapshot.unreadable is not None:
        message = f"{snapshot.unreadable}; restore the file. Brokers continue with the segments that they host"
        return _condition(ConditionType.READY, ConditionStatus.UNKNOWN, "DocumentUnreadable", message)
    if snapshot.layout is None:
        reason = snapshot.waiting_reason or snapshot.rejection
        if not snapshot.layout_read:
            reason = reason or "the leader has not read the topic's layout from the filer yet"
            return _condition(
                ConditionType.READY,
                ConditionStatus.UNKNOWN,
                "LayoutUnknown",
                f"{reason}; brokers continue with their segments",
            )
        reason = reason or "no broker can host its segments yet: check that the brokers are ready"
        return _condition(ConditionType.READY, ConditionStatus.FALSE, "Waiting", reason)
    issues = snapshot.issues
    if issues.blocked:
        message = f"not every partition accepts messages: {_blocked_messages(snapshot, commands)}"
        return _condition(ConditionType.READY, ConditionStatus.FALSE, "SealBlocked", message)
    if issues.unavailable:
        replicas = _list_replicas(issues.unavailable)
        message = f"{replicas} does not respond, and no other broker has taken over yet"
        return _condition(ConditionType.READY, ConditionStatus.FALSE, "BrokerUnavailable", message)
    if issues.stalled:
        message = f"producers have waited for more than 10 s for {_list_replicas(issues.stalled)}"
        if issues.filer is not None:
            return _condition(
                ConditionType.READY,
                ConditionStatus.FALSE,
                "FilerUnavailable",
                f"{message}: {describe_outage(issues.filer)}",
            )
        return _condition(
            ConditionType.READY,
            ConditionStatus.FALSE,
            "NotAcking",
            f"{message}: look at the logs of the segment's brokers",
        )
    return Condition(ConditionType.READY, ConditionStatus.TRUE, "AcceptingMessages", "every partition accepts messages")


def _filer_available(snapshot: TopicSnapshot) -> Condition:
    outage = snapshot.issues.filer
    if outage is None:
        return Condition(
            ConditionType.FILER_AVAILABLE,
            ConditionStatus.TRUE,
            "Writable",
            "the leader and the brokers can write to the filer",
        )
    reason = "BrokersCannotWrite" if outage.brokers else "LeaderCannotWrite"
    return _condition(ConditionType.FILER_AVAILABLE, ConditionStatus.FALSE, reason, describe_outage(outage))


def _balanced(snapshot: TopicSnapshot) -> Condition:
    if snapshot.layout is None:
        return Condition(
            ConditionType.BALANCED, ConditionStatus.UNKNOWN, "Waiting", "the topic's segments are not known yet"
        )
    if snapshot.spec.durability is Durability.REPLICATED:
        living = [s for s in snapshot.layout.segments if not s.successors]
        if stored := [s.name for s in living if s.durability is Durability.STORED]:
            message = (
                f"there are too few brokers for replicas, so acks wait for the filer: {_list(stored)}; add brokers"
            )
            return _condition(ConditionType.BALANCED, ConditionStatus.FALSE, "DurabilityDegraded", message)
        if fewer := [s for s in living if len(s.replicas) < snapshot.spec.replicas]:
            count = min(len(s.replicas) for s in fewer)
            message = (
                f"spec.replicas is {snapshot.spec.replicas}, but there are brokers for {count}: add brokers, "
                f"or reduce spec.replicas ({_list(s.name for s in fewer)})"
            )
            return _condition(ConditionType.BALANCED, ConditionStatus.FALSE, "TooFewBrokers", message)
    if snapshot.issues.draining:
        message = f"replicas are moving off brokers that are being drained: {_list_replicas(snapshot.issues.draining)}"
        return _condition(ConditionType.BALANCED, ConditionStatus.FALSE, "Draining", message)
    return Condition(
        ConditionType.BALANCED, ConditionStatus.TRUE, "Balanced", "every replica is on the broker that it should be on"
    )


def _hot_partition(snapshot: TopicSnapshot) -> Condition:
    if not snapshot.issues.hot:
        return Condition(
            ConditionType.HOT_PARTITION,
            ConditionStatus.FALSE,
            "NoHotPartition",
            "no single partition exceeds the target",
        )
    hot = _list(f"partition {partition} ({segment})" for segment, partition in sorted(snapshot.issues.hot))
    message = f"a single partition exceeds the target and cannot be split; use more keys to spread the load: {hot}"
    return _condition(ConditionType.HOT_PARTITION, ConditionStatus.TRUE, "CannotSplit", message)


def _data_loss(snapshot: TopicSnapshot) -> Condition:
    if not snapshot.lost:
        return Condition(ConditionType.DATA_LOSS, ConditionStatus.FALSE, "NoDataLoss", "no acked message was lost")
    newest_first = sorted(snapshot.lost, key=lambda e: -e.number)
    certain = [e for e in newest_first if e.lost is not None and e.lost.is_certain]
    possible = [e for e in newest_first if e not in certain]
    ranges = (f"{e.name}: {e.lost}" for e in [*certain, *possible])
    if certain:
        return _condition(ConditionType.DATA_LOSS, ConditionStatus.TRUE, "ReplicasLost", _list(ranges))
    message = (
        "all replicas ended before their last messages were known to be in the filer, so it is not known whether acked "
        f"messages were lost: {_list(ranges)}"
    )
    return _condition(ConditionType.DATA_LOSS, ConditionStatus.UNKNOWN, "ReplicasEnded", message)


def _seal_blocked(snapshot: TopicSnapshot, commands: Commands) -> Condition:
    if not snapshot.issues.blocked:
        return Condition(
            ConditionType.SEAL_BLOCKED, ConditionStatus.FALSE, "NotBlocked", "no seal waits for an unreachable broker"
        )
    brokers = [broker for _, waiting_for in snapshot.issues.blocked for broker in waiting_for]
    return _condition(
        ConditionType.SEAL_BLOCKED,
        ConditionStatus.TRUE,
        _blocked_reason(snapshot, brokers),
        _blocked_messages(snapshot, commands),
    )


def _journal_failed(snapshot: TopicSnapshot) -> Condition:
    if not snapshot.issues.journals:
        return Condition(
            ConditionType.JOURNAL_FAILED,
            ConditionStatus.FALSE,
            "JournalsWritten",
            "no broker of the topic reports a failed journal",
        )
    problems = _list(f"{broker}: {problem}" for broker, problem in snapshot.issues.journals)
    message = (
        f"{problems}. The messages are replicated as before, but those that are not in the filer yet are lost if all "
        "replicas end at once. Free or replace the disk of the journal; segments that open later have one again"
    )
    return _condition(ConditionType.JOURNAL_FAILED, ConditionStatus.TRUE, "WriteFailed", message)


def _spec_rejected(snapshot: TopicSnapshot) -> Condition:
    if snapshot.rejection is None:
        return Condition(ConditionType.SPEC_REJECTED, ConditionStatus.FALSE, "Accepted", "the leader follows the spec")
    return _condition(ConditionType.SPEC_REJECTED, ConditionStatus.TRUE, "SpecRejected", snapshot.rejection)


def _autoscaling_paused(snapshot: TopicSnapshot, commands: Commands) -> Condition:
    if not snapshot.paused:
        return Condition(
            ConditionType.AUTOSCALING_PAUSED,
            ConditionStatus.FALSE,
            "NotPaused",
            "the number of segments follows the load",
        )
    withheld = snapshot.issues.withheld
    calls_for = f"; load calls for {_list(withheld, 3)}" if withheld else ""
    message = (
        f"load does not split or merge segments, but failover, drains, rolls and manual requests continue{calls_for}. "
        f"To resume, {commands.resume(snapshot.namespace, snapshot.short_name)}"
    )
    return _condition(ConditionType.AUTOSCALING_PAUSED, ConditionStatus.TRUE, "PausedByAnnotation", message)


def _retention_blocked(snapshot: TopicSnapshot) -> Condition:
    if snapshot.clock_skew_minutes and snapshot.spec.retention_age is not None:
        return _condition(
            ConditionType.RETENTION_BLOCKED, ConditionStatus.TRUE, "ClockSkew", _clock_skew_message(snapshot)
        )
    if not snapshot.unread_by:
        message = "no group keeps segments beyond spec.retention"
        return Condition(ConditionType.RETENTION_BLOCKED, ConditionStatus.FALSE, "NotBlocked", message)
    return _condition(
        ConditionType.RETENTION_BLOCKED, ConditionStatus.TRUE, "UnreadByGroups", _unread_message(snapshot)
    )


def _quotas_ignored(snapshot: TopicSnapshot) -> Condition:
    if not snapshot.issues.quotas_ignored:
        message = "no quota of the topic is ignored"
        return Condition(ConditionType.QUOTAS_IGNORED, ConditionStatus.FALSE, "NotIgnored", message)
    message = (
        "spec.quotas limits nobody, because this release is open and knows no identities: switch security on, or take "
        "the quotas out"
    )
    return _condition(ConditionType.QUOTAS_IGNORED, ConditionStatus.TRUE, "NoIdentities", message)


def _unread_message(snapshot: TopicSnapshot) -> str:
    return (
        f"segments stay beyond spec.retention because groups have not read them ({_list(snapshot.unread_by)}): "
        "let the groups read them, or set retention.unread: Expire"
    )


def _clock_skew_message(snapshot: TopicSnapshot) -> str:
    minutes = snapshot.clock_skew_minutes
    message = (
        f"the leader's clock is {abs(minutes)} minutes {'ahead of' if minutes > 0 else 'behind'} the filer's, so "
        "segments may stay longer than retention.age: a segment is removed only when both clocks say that it is old "
        "enough. Correct the clock that is wrong; if that was the operator's, restart the operator"
    )
    return f"{message}; {_unread_message(snapshot)}" if snapshot.unread_by else message


def _blocked_messages(snapshot: TopicSnapshot, commands: Commands) -> str:
    blocked = sorted(snapshot.issues.blocked)
    return _list(_blocked_message(snapshot, segment, brokers, commands) for segment, brokers in blocked)


def _blocked_reason(snapshot: TopicSnapshot, brokers: Iterable[str]) -> str:
    return "JournalsAwaited" if set(brokers) <= set(snapshot.issues.awaited) else "ReplicasUnreachable"


def _blocked_message(snapshot: TopicSnapshot, segment: str, brokers: Sequence[str], commands: Commands) -> str:
    return (
        f"{segment}: no replica responds, and none is confirmed gone ({', '.join(brokers)})"
        f"{_awaited(snapshot, brokers)}; {commands.restore}, "
        f"or accept losing the messages that exist only there: {commands.accept_loss(snapshot.namespace, segment)}"
    )


def _awaited(snapshot: TopicSnapshot, brokers: Iterable[str]) -> str:
    """Which of these brokers only have to start again."""
    match [broker for broker in brokers if broker in snapshot.issues.awaited]:
        case []:
            return ""
        case [broker]:
            ended, whose = f"the process of {broker} has", "its journal"
        case several:
            ended, whose = f"the processes of {' and '.join(several)} have", "their journals"
    return f"; {ended} ended, and {whose} may have messages that are nowhere else, so the seal waits for a restart"


def _list_replicas(replicas: Iterable[AffectedReplica]) -> str:
    by_broker: dict[str, list[str]] = {}
    for replica in sorted(replicas, key=lambda replica: (replica.broker, replica.segment)):
        by_broker.setdefault(replica.broker, []).append(replica.segment)
    return "; ".join(f"broker {broker} of {_list(segments)}" for broker, segments in by_broker.items())


def _list(items: Iterable[str], shown: int = 5) -> str:
    every = list(items)
    more = f" and {len(every) - shown} more" if len(every) > shown else ""
    return ", ".join(every[:shown]) + more


def _condition(type_: ConditionType, status: ConditionStatus, reason: str, message: str) -> Condition:
    if len(message) > MAX_MESSAGE_LENGTH:
        message = message[: MAX_MESSAGE_LENGTH - 1] + "…"
    return Condition(type_, status, reason, message)
