"""The annotations of docs/resources.md and docs/elasticity.md, written by kubectl, do what these pages say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from smq_operator.kube.segment_annotations import HELP
from smq_storage.topic_manifests.parser import AUTOSCALING_ANNOTATION
from support.doc_blocks import console_blocks
from support.kube.client import KubeClient
from support.kube.operator_process import OperatorProcess, topic
from support.processes.broker import BrokerProcess
from support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]
API = "seaweedmq.io/v1alpha1"
(BLOCK,) = console_blocks("docs/resources.md")
LINES = [command for command, _ in BLOCK]
PAUSE = [command.partition("# or: ")[2] for command, _ in console_blocks("docs/elasticity.md")[0]]


def annotation_of(line: str) -> tuple[str, str, str]:
    """The segment, the annotation and its value."""
    found = re.match(r"kubectl annotate segment (\S+) (\S+)=(\S+)", line)
    assert found, line
    return found[1], found[2], found[3]


class PageTopics:
    """A Namespace with the topics of the page. Each line may have its own topic, whose name replaces ``flights``."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.kube, self.namespace = kube, namespace

    def create(self, name: str, **spec: object) -> None:
        """It has one segment."""
        self.kube.create(topic(self.namespace, name, partitions=1024, **spec))
        eventually(lambda: self.open_segments(name) == [f"{name}-0-1024-0"], what=f"{name} is open")

    def run(self, line: str, name: str = "flights") -> str:
        """Runs the line. Returns the segment that it annotates."""
        words = shlex.split(line.replace("flights", name), comments=True)
        assert words[0] == "kubectl"
        self.kube.kubectl(*words[1:], "-n", self.namespace)
        return words[3]

    def phases(self, name: str) -> dict[str, str]:
        """Of the topic's segments."""
        found = self.kube.list(API, "Segment", self.namespace)
        mine = [s for s in found if s["metadata"]["ownerReferences"][0]["name"] == name]
        return {s["metadata"]["name"]: s.get("status", {}).get("phase", "") for s in mine}

    def open_segments(self, name: str) -> list[str]:
        return sorted(segment for segment, phase in self.phases(name).items() if phase == "Open")

    def events(self, about: str) -> dict[str, str]:
        """The messages by reason."""
        found = self.kube.list("v1", "Event", self.namespace)
        return {e["reason"]: e["message"] for e in found if e["involvedObject"]["name"] == about}

    def conditions(self, name: str) -> dict[str, str]:
        status = self.kube.get(topic(self.namespace, name)).get("status", {})
        return {c["type"]: c["status"] for c in status.get("conditions", [])}

    def segment(self, name: str) -> dict[str, Any]:
        return self.kube.get(
            {"apiVersion": API, "kind": "Segment", "metadata": {"name": name, "namespace": self.namespace}}
        )

    def wait_completed(self, line: str, segment: str, name: str, expected_open: list[str]) -> None:
        """The topic has these open segments then."""
        eventually(lambda: self.open_segments(name) == expected_open, what=f"{line}: {expected_open}")
        self.wait_reported(line, segment)

    def wait_reported(self, line: str, segment: str) -> None:
        """Events of the segment report the result, and the annotation is removed, as the page says."""
        wanted = {"RequestAccepted", "RequestCompleted"}
        eventually(lambda: wanted <= self.events(segment).keys(), what=f"{line}: its Events")
        assert "RequestRejected" not in self.events(segment)
        key = annotation_of(line)[1]
        eventually(
            lambda: key not in self.segment(segment)["metadata"].get("annotations", {}),
            what=f"{line}: the annotation is removed",
        )


def test_the_annotations_are_those_that_the_operator_knows() -> None:
    assert {annotation_of(line)[1] for line in LINES} == set(HELP)
    assert [shlex.split(line)[-1].rstrip("-").partition("=")[0] for line in PAUSE] == [AUTOSCALING_ANNOTATION] * 2


def test_each_line_runs(
    operator: OperatorProcess, new_broker: Callable[..., BrokerProcess], kube: KubeClient, namespace: str
) -> None:
    brokers = [new_broker(name, operator) for name in ("a", "b")]
    topics = PageTopics(kube, namespace)
    middle, points, merge, move, roll, accept_loss = LINES
    own = {points: "points", move: "moved", roll: "rolled", accept_loss: "lossy"}
    for name in ("flights", own[points], own[move], own[roll]):
        topics.create(name, replicas=1, durability="Stored")
    topics.create(own[accept_loss])

    segment = topics.run(middle)
    topics.wait_completed(middle, segment, "flights", ["flights-0-512-1", "flights-512-1024-2"])
    segment = topics.run(merge)  # of the two segments that the first line has made
    topics.wait_completed(merge, segment, "flights", ["flights-0-1024-3"])
    segment = topics.run(points, "points")
    topics.wait_completed(points, segment, "points", ["points-0-256-1", "points-256-512-2", "points-512-1024-3"])
    for line in (move, roll):
        segment = topics.run(line, own[line])
        topics.wait_completed(line, segment, own[line], [f"{own[line]}-0-1024-1"])

    pause, resume = PAUSE
    topics.run(pause)
    eventually(lambda: topics.conditions("flights")["AutoscalingPaused"] == "True", what="autoscaling is paused")
    topics.run(resume)
    eventually(lambda: topics.conditions("flights")["AutoscalingPaused"] == "False", what="autoscaling is resumed")

    lossy = own[accept_loss]
    for broker in brokers:
        broker.kill()  # their Pods stay, so nothing proves that they are gone
    new_broker("c", operator)
    eventually(lambda: topics.conditions(lossy)["SealBlocked"] == "True", what="the seal is blocked")
    segment = topics.run(accept_loss, lossy)
    topics.wait_reported(accept_loss, segment)
    eventually(lambda: len(topics.open_segments(lossy)) == 1, what="the range continues in a new segment")
