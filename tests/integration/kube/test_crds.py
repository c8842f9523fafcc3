"""The CustomResourceDefinitions as kubectl's users meet them, on a real API server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from smq_core.model.entities import segment_name
from smq_core.model.keyspace import KeyRange
from support.kube.client import KubeApiError, KubeClient, established
from support.kube.manifest_cases import manifest
from support.waiting import eventually

pytestmark = pytest.mark.integration
API = "seaweedmq.io/v1alpha1"
TOPIC_HEADERS = ["NAME", "PARTITIONS", "SEGMENTS", "BROKERS", "READY", "LAST-DECISION", "AGE"]
NOW = "2024-01-01T00:00:00Z"


@pytest.fixture
def topic(kube: KubeClient, namespace: str) -> dict[str, Any]:
    made = manifest({"partitions": 512}, name="flights")
    made["metadata"]["namespace"] = namespace
    return kube.create(made)


def segment(namespace: str, start: int = 0, stop: int = 512, number: int = 7, **spec: object) -> dict[str, Any]:
    name = segment_name("flights", KeyRange(start, stop), number)
    spec = {"topic": "flights", "number": number, "range": f"{start}-{stop}"} | spec
    return {
        "apiVersion": API,
        "kind": "Segment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


@pytest.mark.parametrize(("kind", "short"), [("topics", "smqt"), ("segments", "smqs")])
def test_both_are_established_with_short_names_and_the_category(kube: KubeClient, kind: str, short: str) -> None:
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    found = kube.get(crd | {"metadata": {"name": f"{kind}.seaweedmq.io"}})
    assert established(found)
    bad = [c for c in found["status"]["conditions"] if c["type"] == "NonStructuralSchema" or c["status"] != "True"]
    assert not bad
    served = kube.request("GET", f"/apis/{API}")["resources"]
    names = next(r for r in served if r["name"] == kind)
    assert (names["shortNames"], names["categories"]) == ([short], ["smq"])
    assert kube.kubectl("get", short, "-n", "kube-system") == "", (
        "kubectl accepts the short name, and there is no such resource"
    )


def test_topics_are_listed_with_what_matters(kube: KubeClient, topic: dict[str, Any]) -> None:
    status = {
        "segments": {"open": 4, "sealing": 1, "sealed": 9},
        "brokers": 3,
        "conditions": [_condition("Balanced", "False"), _condition("Ready", "True")],
        "lastDecision": {"time": NOW, "action": "Split", "segments": ["flights-0-512-0"], "reason": "70 MB/s"},
    }
    kube.patch(topic, {"status": status}, status=True)
    headers, rows = kube.table(API, "Topic", topic["metadata"]["namespace"])
    assert headers == TOPIC_HEADERS
    assert rows[0][:-1] == ["flights", 512, 4, 3, "True", "Split"]


def test_a_new_topic_is_listed_with_what_is_known(kube: KubeClient, topic: dict[str, Any]) -> None:
    shown = kube.kubectl("get", "topics", "-n", topic["metadata"]["namespace"])
    assert shown.splitlines()[0].split() == TOPIC_HEADERS
    assert shown.splitlines()[1].split()[:2] == ["flights", "512"]


def test_segments_are_listed_with_what_matters(kube: KubeClient, namespace: str) -> None:
    made = kube.create(segment(namespace))
    status = {"phase": "Sealed", "brokers": ["broker-1", "broker-2"], "endOffset": 99, "openedBecause": "Split"}
    kube.patch(made, {"status": status}, status=True)
    headers, rows = kube.table(API, "Segment", namespace)
    assert headers == ["NAME", "TOPIC", "RANGE", "PHASE", "PRIMARY", "END", "REASON", "AGE"]
    assert rows[0][:-1] == ["flights-0-512-7", "flights", "0-512", "Sealed", "broker-1", 99, "Split"]


def test_segments_are_found_by_topic_and_phase(kube: KubeClient, namespace: str) -> None:
    for number, phase in ((1, "Open"), (2, "Sealed")):
        made = kube.create(segment(namespace, number=number))
        kube.patch(made, {"status": {"phase": phase}}, status=True)
    kube.create(segment(namespace, number=3))
    found = kube.list(API, "Segment", namespace, fieldSelector="spec.topic=flights,status.phase=Open")
    assert [s["spec"]["number"] for s in found] == [1]


def test_the_category_lists_both(kube: KubeClient, topic: dict[str, Any]) -> None:
    namespace = topic["metadata"]["namespace"]
    kube.create(segment(namespace))
    shown = kube.kubectl("get", "smq", "-n", namespace, "-o", "name")
    assert shown.split() == ["segment.seaweedmq.io/flights-0-512-7", "topic.seaweedmq.io/flights"]


@pytest.mark.parametrize("kind", ["Topic", "Segment"])
def test_status_and_spec_are_written_apart(kube: KubeClient, topic: dict[str, Any], kind: str) -> None:
    namespace = topic["metadata"]["namespace"]
    made = topic if kind == "Topic" else kube.create(segment(namespace))
    written = {"brokers": 3} if kind == "Topic" else {"endOffset": 3}
    whole = kube.patch(made, {"status": written, "metadata": {"labels": {"a": "b"}}})
    assert whole["metadata"]["labels"] == {"a": "b"}
    assert "status" not in whole, "a write of the resource leaves its status alone"
    spec = {"spec": {"replicas": 5}} if kind == "Topic" else {"spec": {"number": 9}}
    after = kube.patch(made, spec | {"status": written}, status=True)
    assert after["spec"] == made["spec"], "a write of the status leaves the spec alone"
    assert after["status"] == written
    assert after["metadata"]["generation"] == made["metadata"]["generation"]


def test_a_label_is_no_new_generation_and_a_change_is(kube: KubeClient, topic: dict[str, Any]) -> None:
    assert kube.patch(topic, {"metadata": {"annotations": {"x": "y"}}})["metadata"]["generation"] == 1
    assert kube.patch(topic, {"spec": {"replicas": 3}})["metadata"]["generation"] == 2


@pytest.fixture
def alone(kube: KubeClient) -> Iterator[dict[str, Any]]:
    """A Segment to be made without a separate Namespace."""
    resource = segment("default", number=uuid.uuid4().int % 10**12)
    yield resource
    kube.delete(resource)


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "others"},
        {"number": 8},
        {"range": "0-256"},
        {"durability": "Stored"},
        {"replicas": [{"broker": "b", "incarnation": "i"}]},
        {"predecessors": ["flights-0-512-1"]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_segment_cannot_be_edited(kube: KubeClient, alone: dict[str, Any], change: Mapping[str, Any]) -> None:
    made = kube.create(alone)
    with pytest.raises(KubeApiError, match=r"annotate it with seaweedmq\.io/split=true"):
        kube.patch(made, {"spec": change})
    kube.patch(made, {"metadata": {"annotations": {"seaweedmq.io/split": "true"}}})


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"metadata": {"name": "mine"}}, "the operator creates"),
        ({"metadata": {"name": "flights-0-512-8"}}, "the operator creates"),
        ({"spec": {"range": "512-512"}}, "start below stop"),
        ({"spec": {"range": "0"}}, "start below stop"),
        ({"spec": {"range": "[0,512)"}}, "such as 0-512"),
        ({"spec": {"number": -1}}, "greater than or equal to 0"),
        ({"spec": {"number": None}}, "Required value"),
        ({"spec": {"durability": "Lost"}}, '"Replicated", "Stored"'),
        ({"spec": {"brokers": []}}, "unknown field"),
        ({"spec": None}, "Required value"),
    ],
    ids=str,
)
def test_a_wrong_segment_is_refused(kube: KubeClient, wrong: Mapping[str, Any], advice: str) -> None:
    resource = segment("default")
    for part, fields in wrong.items():
        resource[part] = fields and resource[part] | fields
    with pytest.raises(KubeApiError) as caught:
        kube.create(resource, dry_run=True)
    assert advice in caught.value.message


def test_the_longest_name_of_a_segment_fits(kube: KubeClient) -> None:
    name = "t" * 63
    full = segment("default", 65_534, 65_535, 10**15, topic=name)
    full["metadata"]["name"] = segment_name(name, KeyRange(65_534, 65_535), 10**15)
    assert kube.create(full, dry_run=True)["metadata"]["name"].startswith(name)


def test_the_longest_spec_of_a_segment_fits(kube: KubeClient) -> None:
    replicas = [{"broker": f"broker-{i}", "incarnation": "f" * 32, "address": f"10.0.0.{i}:7071"} for i in range(7)]
    names = [segment_name("flights", KeyRange(i, i + 1), i) for i in range(512)]
    made = kube.create(segment("default", durability="Stored", replicas=replicas, predecessors=names), dry_run=True)
    assert len(made["spec"]["predecessors"]) == 512


def test_segments_go_with_their_topic(kube: KubeClient, topic: dict[str, Any]) -> None:
    """By ownerReferences, without an operator: no finalizer blocks a Topic or a Namespace."""
    owner = {"apiVersion": API, "kind": "Topic", "name": "flights", "uid": topic["metadata"]["uid"]}
    resource = segment(topic["metadata"]["namespace"])
    resource["metadata"]["ownerReferences"] = [owner]
    made = kube.create(resource)
    kube.delete(topic)
    assert kube.find(topic) is None
    eventually(lambda: kube.find(made) is None, what="the Segment is collected")


def _condition(type_: str, status: str) -> dict[str, str]:
    return {"type": type_, "status": status, "lastTransitionTime": NOW, "reason": "Tested", "message": "because"}
