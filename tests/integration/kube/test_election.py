"""Several operators of one release: one leads, the others know where it is, and follow it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from e2e.cluster.cluster import Cluster
from smq_core.errors import NotLeader
from smq_proto.v1 import admin_pb2
from smq_proto.v1.admin_pb2_grpc import AdminStub
from support.fault_injection.tcp_proxy import CuttableTcpProxy
from support.kube.client import KubeClient
from support.kube.operator_process import OperatorProcess, topic
from support.processes.broker import BrokerProcess
from support.processes.leader import error_of
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration
Operators = Callable[..., OperatorProcess]


def lease(kube: KubeClient, namespace: str) -> dict[str, Any]:
    metadata = {"name": "smq-operator", "namespace": namespace}
    return kube.get({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata})


def rejection(operator: OperatorProcess) -> NotLeader:
    with grpc.insecure_channel(operator.listen) as channel, pytest.raises(grpc.RpcError) as caught:
        AdminStub(channel).ListTopics(admin_pb2.ListTopicsRequest(), timeout=HANG_GUARD)
    error = error_of(caught.value)
    assert isinstance(error, NotLeader)
    return error


def standby(new_operator: Operators, leader: OperatorProcess) -> OperatorProcess:
    """Another operator that has seen the leader."""
    other = new_operator()
    other.launch()
    eventually(lambda: rejection(other).leader == leader.listen)
    return other


def leads(operator: OperatorProcess) -> bool:
    return bool(operator.events("leader.ready"))


@pytest.mark.slow
def test_one_leads_the_other_names_it_and_is_ready(
    operator: OperatorProcess, new_operator: Operators, kube: KubeClient, namespace: str
) -> None:
    assert lease(kube, namespace)["metadata"]["annotations"]["seaweedmq.io/address"] == operator.listen
    other = standby(new_operator, operator)
    assert other.ready and operator.ready
    eventually(lambda: operator.is_labelled_leader, what="the Service finds the leader")
    assert not other.is_labelled_leader


@pytest.mark.slow
def test_a_killed_leader_is_followed_and_the_next_one_decides(
    operator: OperatorProcess,
    new_operator: Operators,
    new_broker: Callable[..., BrokerProcess],
    kube: KubeClient,
    namespace: str,
) -> None:
    other = standby(new_operator, operator)
    for name in ("a", "b"):
        new_broker(name, operator, other)
    kube.create(topic(namespace))
    eventually(lambda: operator.locate(f"{namespace}/t").layout.segments)
    operator.kill()
    kube.create(topic(namespace, "u"))
    eventually(lambda: other.events("decision"), what="the next leader's first decision")
    eventually(lambda: other.is_labelled_leader and not operator.is_labelled_leader)


@pytest.mark.slow
def test_a_leader_that_stops_hands_over_at_once(operator: OperatorProcess, new_operator: Operators) -> None:
    other = standby(new_operator, operator)
    assert operator.terminate() == 0
    eventually(lambda: leads(other), what="the other leads")
    assert not operator.is_labelled_leader


@pytest.mark.slow
def test_a_leader_that_was_paused_finds_its_lease_taken_and_exits(
    operator: OperatorProcess, new_operator: Operators
) -> None:
    other = standby(new_operator, operator)
    eventually(lambda: operator.is_labelled_leader)
    operator.pause()
    eventually(lambda: leads(other))
    eventually(lambda: not operator.is_labelled_leader, what="clients are not sent to a paused operator")
    operator.resume()
    assert operator.process.wait(HANG_GUARD) == 1
    assert operator.events("leader.lost")[0]["leader"] == other.listen


@pytest.mark.slow
def test_a_leader_cut_off_from_the_api_server_ends_when_another_leads(
    new_operator: Operators,
    new_broker: Callable[..., BrokerProcess],
    api_server: Cluster,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
) -> None:
    plane = api_server.control_plane
    other = new_operator()
    other.annotate_address()
    with CuttableTcpProxy(plane.host, plane.port) as wire:
        through = tmp_path / "kubeconfig"
        through.write_text(kube.kubeconfig.read_text().replace(plane.url, f"https://{wire.address}"))
        alone = new_operator(through).start()
        other.launch()
        for name in ("a", "b"):
            new_broker(name, alone, other)
        kube.create(topic(namespace))
        full = f"{namespace}/t"
        segment = eventually(lambda: alone.locate(full).layout.segments)[0].name
        wire.cut()
        other.wait_ready()
        assert alone.process.wait(HANG_GUARD) == 1
        assert alone.events("leader.lost")[0]["leader"] == other.listen
        segments = eventually(lambda: other.locate(full).layout.segments)
        assert [s.name for s in segments] == [segment], "the brokers are with the other now, and nothing had to move"


def test_a_deleted_lease_is_recreated(operator: OperatorProcess, kube: KubeClient, namespace: str) -> None:
    old = lease(kube, namespace)
    kube.delete(old)
    eventually(lambda: lease(kube, namespace)["metadata"]["uid"] != old["metadata"]["uid"])
    assert lease(kube, namespace)["spec"]["holderIdentity"] == old["spec"]["holderIdentity"]
    assert operator.process.poll() is None
