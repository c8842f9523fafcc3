"""Which conditions a topic has in which situation, and that ``smq`` and ``kubectl`` show the same ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from smq_core.model.entities import Durability, Layout, SealedSegment, TopicSpec
from smq_core.model.loss import Loss
from smq_operator.api.admin import SMQ, condition_messages
from smq_operator.kube.status.condition_merge import KUBECTL, topic_status_conditions
from smq_operator.status.health import AffectedReplica, FilerOutage, HealthIssues
from smq_operator.status.topic_conditions import (
    MAX_MESSAGE_LENGTH,
    OPTIONAL_TYPES,
    Condition,
    segment_blocked,
    topic_conditions,
)
from smq_operator.status.topic_snapshot import TopicSnapshot
from support.kube.resources_in_memory import NOW, finished, new_layout, split, topic_snapshot

NAME = "flights-0-16-0"
ONE_SEGMENT = new_layout()
OUTAGE = FilerOutage(7_000_000, "full", (("b0", "disk full"),))
HEALTHY = {
    "Ready": ("True", "AcceptingMessages"),
    "FilerAvailable": ("True", "Writable"),
    "Balanced": ("True", "Balanced"),
    "HotPartition": ("False", "NoHotPartition"),
    "DataLoss": ("False", "NoDataLoss"),
    "SealBlocked": ("False", "NotBlocked"),
    "JournalFailed": ("False", "JournalsWritten"),
    "SpecRejected": ("False", "Accepted"),
    "AutoscalingPaused": ("False", "NotPaused"),
    "RetentionBlocked": ("False", "NotBlocked"),
    "QuotasIgnored": ("False", "NotIgnored"),
}


@dataclass(frozen=True)
class Situation:
    """A topic, the conditions that differ from those of a healthy one, and words of their messages."""

    snapshot: TopicSnapshot
    differs: dict[str, tuple[str, str]]
    words: dict[str, str]


def situation(layout: Layout | None = ONE_SEGMENT, **more: Any) -> Situation:
    """``expect`` maps a type to (status, reason, words of the message)."""
    expect: dict[str, tuple[str, str, str]] = more.pop("expect", {})
    return Situation(
        topic_snapshot(layout, **more),
        {type_: (status, reason) for type_, (status, reason, _) in expect.items()},
        {type_: words for type_, (_, _, words) in expect.items()},
    )


def stored(layout: Layout) -> Layout:
    return replace(layout, segments=tuple(replace(s, durability=Durability.STORED) for s in layout.segments))


def lossy(stop: int = 20, at_least: bool = False) -> SealedSegment:
    entry = finished(split(new_layout(), NAME))[1][0]
    return replace(entry, lost=Loss(10, stop, at_least))


NO_LAYOUT = ("Unknown", "Waiting", "not known yet")
THREE_REPLICAS = TopicSpec(partitions=16, replicas=3)
SITUATIONS = {
    "healthy": situation(),
    "being split": situation(split(new_layout(), NAME)),
    "filer full, memory left": situation(
        issues=HealthIssues(filer=OUTAGE),
        expect={
            "FilerAvailable": (
                "False",
                "BrokersCannotWrite",
                "since 00:00:07 UTC (the leader: full; broker b0: disk full)",
            )
        },
    ),
    "filer full, producers wait": situation(
        issues=HealthIssues(filer=OUTAGE, stalled=(AffectedReplica(NAME, "b0"),)),
        expect={
            "FilerAvailable": ("False", "BrokersCannotWrite", "commits of groups wait"),
            "Ready": ("False", "FilerUnavailable", f"for broker b0 of {NAME}: the filer takes no writes"),
        },
    ),
    "filer does not answer the leader": situation(
        issues=HealthIssues(filer=FilerOutage(7_000_000, "no answer", ())),
        expect={"FilerAvailable": ("False", "LeaderCannotWrite", "the leader: no answer")},
    ),
    "producers wait for another reason": situation(
        issues=HealthIssues(stalled=(AffectedReplica(NAME, "b0"),)),
        expect={"Ready": ("False", "NotAcking", "look at the logs")},
    ),
    "quotas in an open release": situation(
        issues=HealthIssues(quotas_ignored=True), expect={"QuotasIgnored": ("True", "NoIdentities", "is open")}
    ),
    "no broker yet": situation(
        None, expect={"Ready": ("False", "Waiting", "check that the brokers are ready"), "Balanced": NO_LAYOUT}
    ),
    "no layout, rejected spec": situation(
        None,
        rejection="partitions cannot change",
        expect={
            "Ready": ("False", "Waiting", "partitions cannot change"),
            "Balanced": NO_LAYOUT,
            "SpecRejected": ("True", "SpecRejected", "partitions cannot change"),
        },
    ),
    "layout not read": situation(
        None,
        layout_read=False,
        expect={"Ready": ("Unknown", "LayoutUnknown", "has not read the topic's layout"), "Balanced": NO_LAYOUT},
    ),
    "filer down": situation(
        None,
        layout_read=False,
        waiting_reason="the filer does not answer",
        expect={"Ready": ("Unknown", "LayoutUnknown", "the filer does not answer"), "Balanced": NO_LAYOUT},
    ),
    "a new spec waits for the filer": situation(waiting_reason="the filer does not answer"),
    "broker away": situation(
        issues=HealthIssues(unavailable=(AffectedReplica(NAME, "b1"),)),
        expect={"Ready": ("False", "BrokerUnavailable", f"broker b1 of {NAME} does not respond")},
    ),
    "seal blocked": situation(
        issues=HealthIssues(blocked=((NAME, ("b0", "b1")),), unavailable=(AffectedReplica(NAME, "b1"),)),
        expect={
            "Ready": ("False", "SealBlocked", "none is confirmed gone (b0, b1)"),
            "SealBlocked": ("True", "ReplicasUnreachable", "none is confirmed gone (b0, b1)"),
        },
    ),
    "seal blocked by a journal": situation(
        issues=HealthIssues(blocked=((NAME, ("b0", "b1")),), awaited=("b1",)),
        expect={
            "Ready": ("False", "SealBlocked", "the process of b1 has ended"),
            "SealBlocked": ("True", "ReplicasUnreachable", "the process of b1 has ended"),
        },
    ),
    "seal blocked by all journals": situation(
        issues=HealthIssues(blocked=((NAME, ("b0", "b1")),), awaited=("b0", "b1")),
        expect={
            "Ready": ("False", "SealBlocked", "the processes of b0 and b1 have ended"),
            "SealBlocked": ("True", "JournalsAwaited", "their journals may have messages that are nowhere else"),
        },
    ),
    "a journal that failed": situation(
        issues=HealthIssues(journals=(("b1", "2 segments continue without a journal: no space left on device"),)),
        expect={"JournalFailed": ("True", "WriteFailed", "b1: 2 segments continue without a journal: no space left")},
    ),
    "draining": situation(
        issues=HealthIssues(draining=(AffectedReplica(NAME, "b0"),)),
        expect={"Balanced": ("False", "Draining", f"broker b0 of {NAME}")},
    ),
    "too few brokers": situation(
        spec=THREE_REPLICAS,
        expect={"Balanced": ("False", "TooFewBrokers", "spec.replicas is 3, but there are brokers for 2")},
    ),
    "too few brokers while draining": situation(
        spec=THREE_REPLICAS,
        issues=HealthIssues(draining=(AffectedReplica(NAME, "b0"),)),
        expect={"Balanced": ("False", "TooFewBrokers", NAME)},
    ),
    "a single broker": situation(
        stored(new_layout(brokers=("b0",))),
        expect={"Balanced": ("False", "DurabilityDegraded", f"acks wait for the filer: {NAME}")},
    ),
    "stored by choice": situation(
        stored(new_layout(brokers=("b0",))), spec=TopicSpec(partitions=16, durability=Durability.STORED)
    ),
    "hot": situation(
        issues=HealthIssues(hot=((NAME, 3),)),
        expect={"HotPartition": ("True", "CannotSplit", f"partition 3 ({NAME})")},
    ),
    "lossy": situation(lost=(lossy(),), expect={"DataLoss": ("True", "ReplicasLost", "offsets 10 to 20")}),
    "open-ended": situation(
        lost=(lossy(at_least=True),),
        expect={"DataLoss": ("True", "ReplicasLost", f"{NAME}: offsets 10 to at least 20")},
    ),
    "possible": situation(
        lost=(lossy(10, True),),
        expect={"DataLoss": ("Unknown", "ReplicasEnded", f"{NAME}: possibly offsets from 10 on")},
    ),
    "certain and possible": situation(
        lost=(lossy(), replace(lossy(10, True), number=99, name="t-0-8-99")),
        expect={
            "DataLoss": ("True", "ReplicasLost", f"{NAME}: offsets 10 to 20, t-0-8-99: possibly offsets from 10 on")
        },
    ),
    "rejected": situation(
        rejection="partitions cannot change",
        expect={"SpecRejected": ("True", "SpecRejected", "partitions cannot change")},
    ),
    "paused": situation(paused=True, expect={"AutoscalingPaused": ("True", "PausedByAnnotation", "drains")}),
    "paused under load": situation(
        paused=True,
        issues=HealthIssues(withheld=tuple(f"a split of {number}" for number in range(5))),
        expect={
            "AutoscalingPaused": ("True", "PausedByAnnotation", "a split of 0, a split of 1, a split of 2 and 2 more")
        },
    ),
    "unread": situation(
        unread_by=("report",), expect={"RetentionBlocked": ("True", "UnreadByGroups", "have not read them (report)")}
    ),
}


def by_type(conditions: list[Condition]) -> dict[str, Condition]:
    return {condition.type: condition for condition in conditions}


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_situation_has_its_conditions(name: str) -> None:
    case = SITUATIONS[name]
    found = by_type(topic_conditions(case.snapshot, SMQ))
    assert {c.type: (c.status, c.reason) for c in found.values()} == HEALTHY | case.differs
    for type_, words in case.words.items():
        assert words in found[type_].message


@pytest.mark.parametrize("name", SITUATIONS)
def test_smq_and_kubectl_show_the_same_conditions(name: str) -> None:
    snapshot = SITUATIONS[name].snapshot
    listed = {c.type: (c.status, c.reason) for c in condition_messages(snapshot)}
    first = topic_status_conditions(snapshot, [], NOW)
    shown = {c["type"]: (c["status"], c["reason"]) for c in first}
    assert shown.items() <= listed.items()
    hidden = listed.keys() - shown.keys()
    assert hidden <= set(OPTIONAL_TYPES) and all(listed[type_][0] == "False" for type_ in hidden)
    every = [{"type": type_, "status": "True"} for type_ in HEALTHY]
    again = topic_status_conditions(snapshot, every, NOW)
    assert {c["type"]: (c["status"], c["reason"]) for c in again} == listed


def test_messages_name_the_commands_of_the_reader() -> None:
    blocked = topic_snapshot(new_layout(), paused=True, issues=HealthIssues(blocked=((NAME, ("b0",)),)))
    for_smq = by_type(topic_conditions(blocked, SMQ))
    assert f"`smq segment accept-loss travel/{NAME}`" in for_smq["SealBlocked"].message
    assert "`smq topic resume-scaling travel/flights`" in for_smq["AutoscalingPaused"].message
    for_kubectl = by_type(topic_conditions(blocked, KUBECTL))
    assert f"kubectl annotate segment {NAME} seaweedmq.io/accept-loss=true" in for_kubectl["SealBlocked"].message
    assert "kubectl annotate topic flights seaweedmq.io/autoscaling-" in for_kubectl["AutoscalingPaused"].message
    assert segment_blocked(blocked, NAME, SMQ).status == "True"
    assert segment_blocked(blocked, "flights-0-8-1", SMQ).status == "False"


def test_the_default_namespace_is_not_named() -> None:
    paused = topic_snapshot(new_layout(), name="default/flights", paused=True)
    assert "`smq topic resume-scaling flights`" in by_type(topic_conditions(paused, SMQ))["AutoscalingPaused"].message


def test_long_lists_and_messages_are_cut() -> None:
    issues = HealthIssues(hot=tuple((f"flights-0-16-{number}", 1) for number in range(9)))
    snapshot = topic_snapshot(new_layout(), issues=issues, rejection="x" * 40_000)
    found = by_type(topic_conditions(snapshot, SMQ))
    assert found["HotPartition"].message.endswith("and 4 more")
    assert len(found["SpecRejected"].message) == MAX_MESSAGE_LENGTH
