"""Brokers are Pods of Deployments: how many there are, and when one is certainly no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from smq_proto.v1 import admin_pb2
from support.kube.client import KubeClient
from support.kube.operator_process import OperatorProcess, deployment_of, pod_of, topic
from support.processes.broker import BrokerProcess
from support.waiting import eventually

pytestmark = pytest.mark.integration
Brokers = Callable[..., BrokerProcess]


def replicas(kube: KubeClient, deployment: dict[str, Any]) -> int:
    found: int = kube.get(deployment)["spec"]["replicas"]
    return found


def proofs(operator: OperatorProcess) -> dict[str, str]:
    return {event["incarnation"]: event["proof"] for event in operator.events("broker.gone")}


@pytest.mark.slow
def test_deployments_are_kept_within_their_annotations(
    operator: OperatorProcess, new_broker: Brokers, kube: KubeClient, namespace: str
) -> None:
    small = kube.create(deployment_of(namespace, name="smq-broker", min_brokers="2", max_brokers="3"))
    assert small["spec"]["replicas"] == 1
    new_broker("a", operator)
    eventually(lambda: replicas(kube, small) == 2, what="as many as the minimum")
    new_broker("b", operator)
    kube.patch(small, {"metadata": {"annotations": {"seaweedmq.io/min-brokers": "3"}}})
    eventually(lambda: replicas(kube, small) == 3, what="the annotation is followed")
    new_broker("c", operator)
    kube.patch(small, {"metadata": {"annotations": {"seaweedmq.io/max-brokers": "2", "seaweedmq.io/min-brokers": "2"}}})
    eventually(lambda: replicas(kube, small) == 2, what="not more than the maximum")
    costs = {name: kube.get(pod_of(name, namespace, "broker"))["metadata"].get("annotations", {}) for name in "abc"}
    assert [c for c in costs.values() if c] == [{"controller.kubernetes.io/pod-deletion-cost": "-1000"}]


def test_an_invalid_annotation_is_refused_with_a_reason(
    operator: OperatorProcess, kube: KubeClient, namespace: str
) -> None:
    kube.create(deployment_of(namespace, min_brokers="two", max_brokers="3"))
    refused = eventually(lambda: operator.events("deployment.annotation_rejected"))[0]["message"]
    assert "'two' is no count of brokers" in refused and 'such as "3"' in refused


@pytest.mark.slow
def test_the_termination_of_all_replicas_is_proved_when_their_pods_are_gone(
    operator: OperatorProcess, new_broker: Brokers, kube: KubeClient, namespace: str
) -> None:
    old = [new_broker(name, operator) for name in ("a", "b")]
    kube.create(topic(namespace, flush={"bytes": "1Gi", "interval": "1h"}))
    full = f"{namespace}/t"
    first = eventually(lambda: operator.locate(full).layout.segments)
    for broker in old:
        broker.kill()
    for name in ("c", "d"):
        new_broker(name, operator)
    eventually(lambda: {b.state for b in operator.brokers() if b.name in "ab"} == {admin_pb2.BrokerList.Broker.SUSPECT})
    names = [segment.name for segment in first]
    assert [s.name for s in operator.locate(full).layout.segments][: len(names)] == names, "silence proves nothing"
    assert proofs(operator) == {}
    for name in ("a", "b"):
        kube.delete(pod_of(name, namespace, "broker"))

    def replaced() -> bool:
        segments = operator.locate(full).layout.segments
        return {r.broker for s in segments for r in s.replicas} == {"c", "d"}

    eventually(replaced)
    assert set(proofs(operator)) == {broker.incarnation for broker in old}
    assert all("was deleted" in proof for proof in proofs(operator).values())


@pytest.mark.slow
def test_a_next_leader_knows_that_pods_are_gone_which_it_never_saw(
    new_operator: Callable[..., OperatorProcess], new_broker: Brokers, kube: KubeClient, namespace: str
) -> None:
    operator = new_operator().start()
    old = [new_broker(name, operator) for name in ("a", "b")]
    kube.create(topic(namespace))
    eventually(lambda: operator.locate(f"{namespace}/t").layout.segments)
    operator.kill()
    for broker in old:
        broker.kill()
        kube.delete(pod_of(broker.name, namespace, "broker"))
    other = new_operator().start("--node-grace", "5s")
    for name in ("c", "d"):
        new_broker(name, other)

    def replaced() -> bool:
        segments = other.locate(f"{namespace}/t").layout.segments
        return {r.broker for s in segments for r in s.replicas} == {"c", "d"}

    eventually(replaced)


def test_a_restarted_container_makes_the_one_before_gone(
    operator: OperatorProcess, new_broker: Brokers, kube: KubeClient, namespace: str
) -> None:
    broker = new_broker("a", operator)
    eventually(lambda: operator.alive() == {"a": broker.incarnation})
    broker.kill()
    crashed = {"terminated": {"exitCode": 137, "finishedAt": "2099-01-01T00:00:00Z"}}
    status = {"name": "broker", "image": "none", "imageID": "", "ready": False, "restartCount": 1}
    status |= {"lastState": crashed, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    kube.patch(pod_of("a", namespace, "broker"), {"status": {"containerStatuses": [status]}}, status=True)
    eventually(lambda: "container in Pod a has terminated" in proofs(operator)[broker.incarnation])


@pytest.mark.slow
def test_by_force_on_a_node_that_is_not_ready_is_no_proof_and_its_removal_is(
    new_operator: Callable[..., OperatorProcess], new_broker: Brokers, kube: KubeClient, namespace: str
) -> None:
    operator = new_operator().start("--node-grace", "2s")
    node = kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{namespace}"}})
    try:
        broker = new_broker("a", operator, nodeName=node["metadata"]["name"])
        eventually(lambda: operator.alive() == {"a": broker.incarnation})
        broker.kill()
        pod = pod_of("a", namespace, "broker")
        kube.request("DELETE", kube.path(pod), {"gracePeriodSeconds": 0})
        assert kube.find(pod) is None
        eventually(lambda: [b.state for b in operator.brokers()] == [admin_pb2.BrokerList.Broker.SUSPECT])
        assert proofs(operator) == {}
    finally:
        kube.delete(node)
    eventually(lambda: "was removed" in proofs(operator)[broker.incarnation])
