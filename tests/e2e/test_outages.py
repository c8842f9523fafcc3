"""What a real cluster does to a release: a node is drained, the API server is away."""

from __future__ import annotations

import time

import pytest

from e2e.cluster.cluster import Cluster
from e2e.load import load
from e2e.release import Release, unique
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]
SPEC = {"partitions": 64, "segments": {"min": 4, "max": 8}, "flush": {"interval": "1s"}}
AWAY = 30.0


def test_a_node_is_drained_under_load(release: Release) -> None:
    name = unique("drain")
    release.topic(name, **SPEC)
    began = time.monotonic()
    try:
        with load(release, name) as running:
            release.kube.kubectl(
                "drain", release.nodes[1], "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=115s"
            )
            took = time.monotonic() - began
            release.wait_ready()
        assert {pod["spec"]["nodeName"] for pod in release.pods("broker")} == {release.nodes[0]}
    finally:
        release.kube.kubectl("uncordon", release.nodes[1])
    print(f"drained a node in {took:.0f} s: longest stall {running.stall:.2f} s")
    assert running.stall < 15
    release.kube.kubectl("-n", "queue", "rollout", "restart", "deployment/smq-broker", "deployment/smq-operator")
    eventually(lambda: {p["spec"]["nodeName"] for p in release.pods("broker")} == set(release.nodes), what="spread")
    release.wait_ready()


def test_data_goes_on_while_the_api_server_is_away(release: Release, two_nodes: Cluster) -> None:
    name = unique("away")
    release.topic(name, **SPEC)
    with load(release, name) as running:
        two_nodes.stop_api_server()
        gone = time.monotonic()
        while time.monotonic() < gone + AWAY:
            running.run_rounds(50)
        two_nodes.start_api_server()
        back = time.monotonic()
        release.wait_ready()
        led = time.monotonic() - back
        release.topic(unique("afterwards"), **SPEC)
        worked = time.monotonic() - back
    print(
        f"API server away {AWAY:.0f} s: longest stall {running.stall:.2f} s; led again {led:.1f} s after its return, "
    )
    print(f"and had made a topic after {worked:.1f} s")
    assert worked < 90 and running.stall < 15
