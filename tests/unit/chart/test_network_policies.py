"""Whom the chart's NetworkPolicies let connect, computed as a cluster's network does it."""

from __future__ import annotations

from typing import Any

from support.kube.chart import VALUES, of_kind, render, workloads

PORTS = {"smq-operator": {7070, 8080}, "smq-broker": {7071, 7072, 8080}, "smq-seaweedfs": {8333}}
RELEASE = {"seaweedmq.io/release": "smq"}
CLIENT = {"queue": "yes"}
HOME, AWAY, MONITORING = ({"kubernetes.io/metadata.name": name} for name in ("queue", "shop", "monitoring"))


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}, "not needed so far"
    return selector.get("matchLabels", {}).items() <= labels.items()


def is_peer(peer: dict[str, Any], labels: dict[str, str], namespace: dict[str, str]) -> bool:
    """Whether a Pod with these labels, in a Namespace with those, is meant."""
    if "ipBlock" in peer:
        return False
    space = peer.get("namespaceSelector")
    return (namespace == HOME if space is None else matches(space, namespace)) and matches(
        peer.get("podSelector", {}), labels
    )


def reached(
    resources: list[dict[str, Any]], labels: dict[str, str], namespace: dict[str, str] = HOME
) -> dict[str, set[int]]:
    """The ports of each Pod of the release that such a Pod may connect to."""
    found = {}
    for name, pod in workloads(resources).items():
        policies = [
            policy["spec"]
            for policy in of_kind(resources, "NetworkPolicy").values()
            if matches(policy["spec"]["podSelector"], pod["metadata"]["labels"])
        ]
        rules = [rule for policy in policies for rule in policy["ingress"]]
        allowed = {
            port["port"]
            for rule in rules
            if "from" not in rule or any(is_peer(peer, labels, namespace) for peer in rule["from"])
            for port in rule["ports"]
        }
        if ports := (allowed if policies else PORTS.get(name, set())):
            found[name] = ports
    return found


CLIENTS = {"smq-operator": {7070}, "smq-broker": {7071}, "smq-seaweedfs": {8333}}


def test_clients_reach_leader_brokers_and_the_trial_and_strangers_nothing() -> None:
    resources = render(VALUES["policies"], namespace="queue")
    assert reached(resources, RELEASE) == CLIENTS
    assert reached(resources, CLIENT) == reached(resources, CLIENT, AWAY) == CLIENTS
    assert reached(resources, {}) == reached(resources, {}, AWAY) == reached(resources, RELEASE, AWAY) == {}
    assert reached(resources, {}, MONITORING) == {"smq-operator": {8080}, "smq-broker": {8080}}


def test_by_default_the_releases_namespace_has_the_clients_and_the_relay_is_for_everybody() -> None:
    values = {"networkPolicy": {"enabled": True}, "external": {"enabled": True}}
    resources = render(values, namespace="queue")
    assert reached(resources, {}) == {"smq-operator": {7070}, "smq-broker": {7071, 7072}}
    assert reached(resources, {}, AWAY) == {"smq-broker": {7072}}


def test_kafka_clients_are_the_same_clients() -> None:
    resources = render(VALUES["kafka"], namespace="queue")
    assert reached(resources, {}) == {"smq-operator": {7070}, "smq-broker": {7071, 9093}}
    assert reached(resources, {}, AWAY) == {}


def test_everybody_reaches_the_proxy_for_kafka_clients_unless_it_is_restricted() -> None:
    values = VALUES["kafka outside"]
    resources = render(values, namespace="queue")
    assert reached(resources, {}, AWAY) == {"smq-kafka-proxy": {9094}}
    restricted = values | {"networkPolicy": VALUES["policies"]["networkPolicy"]}
    resources = render(restricted, namespace="queue")
    assert reached(resources, {}, AWAY) == {}
    assert reached(resources, {}, MONITORING)["smq-kafka-proxy"] == {8080}


def test_the_trial_exposes_s3_alone_also_without_other_policies() -> None:
    resources = render(VALUES["trial"], namespace="queue")
    assert set(of_kind(resources, "NetworkPolicy")) == {"smq-seaweedfs"}
    assert reached(resources, {}, AWAY)["smq-seaweedfs"] == {8333}
    assert of_kind(render({}), "NetworkPolicy") == {}
