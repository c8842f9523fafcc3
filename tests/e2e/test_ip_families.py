"""The release where Pods and Services have IPv6 addresses only, and where they have addresses of both families."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.network import IPV4, IPV6
from e2e.images.product import archives
from e2e.kubectl_plugin import KubectlPlugin
from e2e.load import load
from e2e.nodes import load_images, require_nodes
from e2e.release import SPACE, Release, unique
from smq_core.model.addresses import split_address
from support.data.message_ledger import MessageLedger, check_deliveries, read_back
from support.kube.chart import merged

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]
SPEC = {"partitions": 64, "segments": {"min": 2, "max": 4}, "flush": {"interval": "1s"}}
VALUES = {"ipFamilyPolicy": "PreferDualStack", "networkPolicy": {"enabled": True}, "brokers": {"min": 2, "max": 2}}
# What a user may add, to find all brokers by one name.
HEADLESS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "all-brokers", "namespace": SPACE},
    "spec": {
        "clusterIP": "None",
        "ipFamilyPolicy": "PreferDualStack",
        "selector": {"seaweedmq.io/component": "broker"},
        "ports": [{"port": 7072}],
    },
}
RESOLVE = """
import json, socket, sys
print(json.dumps({name: sorted({found[4][0] for found in socket.getaddrinfo(name, 0)}) for name in sys.argv[1:]}))
"""
# From a Pod, by the names of Services.
ROUND_TRIP = """
import sys, smq
for number, place in enumerate(({}, {"via": "all-brokers:7072"})):
    with smq.connect(None if place else "smq:7070", namespace="queue", timeout=60, **place) as client:
        with client.producer(sys.argv[1]) as producer:
            producer.send(b"%d" % number, key=b"k")
        with client.consumer(sys.argv[1], start="earliest") as consumer:
            found = []
            while len(found) <= number:
                found += consumer.poll(60).table["value"].to_pylist()
print(found)
"""


@pytest.fixture(scope="module", params=[(IPV6,), (IPV4, IPV6)], ids=["IPv6", "both"])
def versions(request: pytest.FixtureRequest) -> tuple[int, ...]:
    found: tuple[int, ...] = request.param
    return found


@pytest.fixture(scope="module")
def release(versions: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    require_nodes()
    with Cluster(tmp_path_factory.mktemp("families"), nodes=2, versions=versions) as cluster:
        load_images(cluster, archives())
        release = Release(cluster)
        release.values = merged(release.values, VALUES)
        release.install()
        yield release


def versions_of(addresses: Iterable[str]) -> tuple[int, ...]:
    return tuple(ipaddress.ip_address(address).version for address in addresses)


def test_all_addresses_are_of_the_families_of_the_cluster(release: Release, versions: tuple[int, ...]) -> None:
    pods = release.kube.list("v1", "Pod", SPACE)
    assert {versions_of(found["ip"] for found in pod["status"]["podIPs"]) for pod in pods} == {versions}
    services = release.kube.list("v1", "Service", SPACE)
    assert {versions_of(service["spec"]["clusterIPs"]) for service in services} == {versions}
    with release.connect() as client:
        brokers = [broker.address for broker in client.admin().brokers()]
    pod_addresses = {pod["status"]["podIP"] for pod in release.pods("broker")}
    assert {split_address(address)[0] for address in brokers} == pod_addresses
    assert all(address.startswith("[") == (versions[0] == IPV6) for address in brokers)


def test_pods_find_services_and_brokers_by_name(release: Release, versions: tuple[int, ...]) -> None:
    release.kube.apply(HEADLESS)
    name, pod = unique("names"), release.pods("operator")[0]["metadata"]["name"]
    release.topic(name, **SPEC)
    inside = ("-n", SPACE, "exec", pod, "--", "python3", "-c")
    found = json.loads(release.kube.kubectl(*inside, RESOLVE, "smq", "smq-seaweedfs", "all-brokers"))
    brokers = {address["ip"] for broker in release.pods("broker") for address in broker["status"]["podIPs"]}
    assert set(found.pop("all-brokers")) == brokers
    assert {tuple(sorted(versions_of(addresses))) for addresses in found.values()} == {versions}
    assert release.kube.kubectl(*inside, ROUND_TRIP, name).strip() == "[b'0', b'1']"
    release.test()


def test_messages_survive_a_killed_broker_and_a_killed_leader(release: Release) -> None:
    name = unique("kills")
    release.topic(name, **SPEC)
    with load(release, name) as running:
        for pod in (release.pods("broker")[0]["metadata"]["name"], release.leader()):
            assert pod is not None
            release.kill(pod)
            running.run_rounds()
            release.wait_ready()


def test_a_client_outside_comes_in_over_each_family(release: Release, versions: tuple[int, ...]) -> None:
    for family in range(len(versions)):
        name = unique("outside")
        release.topic(name, **SPEC)
        ledger = MessageLedger()
        with release.connect_outside(family) as client:
            with client.producer(name) as producer:
                ledger.send(producer, 1000)
            with client.consumer(name, start="earliest") as consumer:
                check_deliveries(ledger, read_back(consumer, ledger.total))
    smq = KubectlPlugin(release)
    assert smq.run("publish", f"{SPACE}/{name}", stdin="one\n").startswith("1 message published")
