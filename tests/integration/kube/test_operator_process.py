"""Real operators and brokers: what happens to a topic is seen with kubectl, whoever leads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import smq
from support.kube.client import KubeClient
from support.kube.operator_process import OperatorProcess, topic
from support.processes.broker import BrokerProcess
from support.waiting import eventually

pytestmark = pytest.mark.integration
API = "seaweedmq.io/v1alpha1"


def segments(kube: KubeClient, namespace: str) -> dict[str, str]:
    """Name and phase of each Segment."""
    found = kube.list(API, "Segment", namespace)
    return {s["metadata"]["name"]: s.get("status", {}).get("phase", "") for s in found}


def versions(kube: KubeClient, namespace: str) -> dict[str, str]:
    """Which version each resource has: it changes with every write."""
    found = kube.list(API, "Segment", namespace) + kube.list(API, "Topic", namespace)
    return {f"{r['kind']} {r['metadata']['name']}": r["metadata"]["resourceVersion"] for r in found}


def unchanged_versions(kube: KubeClient, namespace: str) -> dict[str, str] | None:
    """The versions if none changes for three seconds, which is longer than the leader waits between two looks."""
    before = versions(kube, namespace)
    time.sleep(3)
    return before if versions(kube, namespace) == before else None


def conditions(kube: KubeClient, made: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in kube.get(made).get("status", {}).get("conditions", [])}


@pytest.mark.slow
def test_a_split_by_annotation_and_a_killed_leader(
    operator: OperatorProcess,
    new_operator: Callable[..., OperatorProcess],
    new_broker: Callable[..., BrokerProcess],
    kube: KubeClient,
    namespace: str,
) -> None:
    for name in ("a", "b"):
        new_broker(name, operator)
    made = kube.create(topic(namespace))
    eventually(lambda: segments(kube, namespace) == {"t-0-64-0": "Open"}, what="the Segment is shown")
    eventually(lambda: conditions(kube, made).get("Ready") == "True", what="the Topic is Ready")
    with smq.connect(operator.listen) as client, client.producer(f"{namespace}/t") as producer:
        producer.send(b"x", key=b"k").result()
    kube.kubectl("annotate", "segment", "t-0-64-0", "-n", namespace, "seaweedmq.io/split=true")
    split = {"t-0-64-0": "Sealed", "t-0-32-1": "Open", "t-32-64-2": "Open"}
    eventually(lambda: segments(kube, namespace) == split, what="the split is shown")
    shown = kube.kubectl("get", "segments", "-n", namespace)
    assert " 1 " in next(line for line in shown.splitlines() if line.startswith("t-0-64-0")), "its end is shown"
    for words in ("manual split", "every partition accepts messages"):
        eventually(lambda words=words: words in kube.kubectl("describe", "topic", "t", "-n", namespace), what=words)

    before = eventually(lambda: unchanged_versions(kube, namespace), what="the leader writes nothing more")
    operator.kill()
    other = new_operator()
    other.start()
    kube.delete({"apiVersion": API, "kind": "Segment", "metadata": {"name": "t-0-32-1", "namespace": namespace}})
    eventually(lambda: segments(kube, namespace) == split, what="the next leader shows it again")
    after = versions(kube, namespace)
    assert {key for key in after if before[key] != after[key]} == {"Segment t-0-32-1"}, "and writes nothing else"
