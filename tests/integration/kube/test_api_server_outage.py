"""The API server is away and returns. Data flows, the leader continues, and nothing needs a restart."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import smq
from e2e.cluster.cluster import Cluster
from smq_proto.v1 import admin_pb2
from support.kube.client import KubeClient
from support.kube.operator_process import OperatorProcess, topic
from support.processes.broker import BrokerProcess
from support.waiting import eventually

pytestmark = pytest.mark.integration
# Longer than the Lease's duration.
AWAY = 15.0


@pytest.mark.slow
def test_data_goes_on_and_the_leader_leads_on(
    operator: OperatorProcess,
    new_operator: Callable[..., OperatorProcess],
    new_broker: Callable[..., BrokerProcess],
    api_server: Cluster,
    kube: KubeClient,
    namespace: str,
) -> None:
    standby = new_operator()
    standby.launch()
    for name in ("a", "b"):
        new_broker(name, operator, standby)
    kube.create(topic(namespace))
    full = f"{namespace}/t"
    eventually(lambda: operator.locate(full).layout.segments)
    plane = api_server.control_plane
    with smq.connect(operator.listen) as client, client.producer(full) as producer:
        producer.send(b"before", key=b"k").result()
        plane.daemons.stop("kube-apiserver")
        try:
            gone, sent = time.monotonic(), 0
            before = len(operator.locate(full).layout.segments)
            segment = operator.locate(full).layout.segments[0].name
            operator.call(
                "ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic=full, action="SPLIT", segments=[segment])
            )
            while time.monotonic() - gone < AWAY:
                producer.send(b"meanwhile", key=b"%d" % sent).result()
                sent += 1
            eventually(
                lambda: sum(not s.successors for s in operator.locate(full).layout.segments) > before,
                what="decisions continue",
            )
        finally:
            plane.start_api_server()
            plane.wake_controllers()
        kube.create(topic(namespace, "later"))
        eventually(
            lambda: operator.locate(f"{namespace}/later").layout.segments,
            what="the leader receives new Topics again",
        )
        producer.send(b"after", key=b"k").result()
    assert operator.process.poll() is None and standby.process.poll() is None, "the same one leads"
    assert not operator.events("leader.lost") and not standby.events("leader.ready")
    assert not operator.events("topic.deleted")


@pytest.mark.slow
def test_an_operator_waits_for_an_api_server_that_is_away_at_its_start(
    api_server: Cluster, new_operator: Callable[..., OperatorProcess]
) -> None:
    operator = new_operator()
    plane = api_server.control_plane
    plane.daemons.stop("kube-apiserver")
    try:
        operator.launch()
        eventually(lambda: "waiting for the API server" in operator.http_get("/readyz")[1])
    finally:
        plane.start_api_server()
        plane.wake_controllers()
    eventually(lambda: operator.events("leader.ready"))
