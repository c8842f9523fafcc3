"""The chart on a real API server: every set of values, the life of a release, the rights it gives."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import helm_python as helm
import pytest

from support.kube.chart import CHART, VALUES, given, of_kind, render
from support.kube.client import KubeClient, established
from support.kube.manifest_cases import manifest
from support.kube.operator_process import pod_of
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration
CRD = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}


@pytest.fixture
def release(kube: KubeClient, namespace: str) -> Iterator[tuple[helm.Config, str]]:
    """Helm in a separate Namespace; what it installs as ``smq`` goes after the test."""
    with helm.Config(kubeconfig_path=str(kube.kubeconfig), namespace=namespace) as config:
        yield config, namespace
        try:
            config.uninstall("smq", timeout=int(HANG_GUARD))
        except helm.HelmError as error:
            assert "not found" in str(error)


def check_all(kube: KubeClient, resources: list[dict[str, Any]]) -> None:
    """The API server would take all of it, and knows every field. Pods need accounts that exist."""
    for other in sorted({resource["metadata"].get("namespace", "default") for resource in resources}):
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}, owner="chart")
    for resource in sorted(resources, key=lambda resource: resource["kind"] != "ServiceAccount"):
        if not resource["apiVersion"].startswith("monitoring.coreos.com/"):  # Prometheus' operator, which is not here
            kube.apply(resource, dry_run=resource["kind"] != "ServiceAccount", owner="chart")


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_api_server_takes_all_of_it(kube: KubeClient, namespace: str, values: dict[str, Any]) -> None:
    check_all(kube, render(values, namespace=namespace))


def test_the_api_server_takes_names_that_look_like_numbers(kube: KubeClient) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": str(uuid.uuid4().int)[:16]}}
    kube.create(namespace)
    try:
        check_all(kube, render(VALUES["yaml words"], name="1e3", namespace=namespace["metadata"]["name"]))
    finally:
        kube.delete(namespace)


def test_a_release_lives_and_goes_and_its_topics_stay(kube: KubeClient, release: tuple[helm.Config, str]) -> None:
    config, namespace = release
    values = given({"crds": {"install": False}, "operator": {"clusterWide": False}})
    with helm.Chart.load(CHART) as chart:
        config.install(chart, "smq", values, timeout=int(HANG_GUARD))
        deployment = kube.get(_broker(namespace))
        kube.request(
            "PATCH", kube.path(deployment) + "/scale", {"spec": {"replicas": 7}}, content="application/merge-patch+json"
        )
        config.upgrade(chart, "smq", values | {"brokers": {"max": 20}}, timeout=int(HANG_GUARD))
    upgraded = kube.get(_broker(namespace))
    assert upgraded["metadata"]["annotations"]["seaweedmq.io/max-brokers"] == "20"
    assert upgraded["spec"]["replicas"] == 7, "an upgrade leaves the number of brokers alone"
    topic = manifest(name="kept")
    topic["metadata"]["namespace"] = namespace
    kube.create(topic)
    config.uninstall("smq", timeout=int(HANG_GUARD))
    assert kube.find(_broker(namespace)) is None
    assert kube.get(topic)
    assert established(kube.get(CRD | {"metadata": {"name": "topics.seaweedmq.io"}}))


@pytest.mark.parametrize("wide", [True, False], ids=["cluster", "namespace"])
def test_the_operator_may_do_its_work_and_nothing_else(kube: KubeClient, namespace: str, wide: bool) -> None:
    values = {"crds": {"install": False}, "operator": {"clusterWide": wide}}
    made = render(values, name="rights", namespace=namespace)
    made = [r for r in made if "Role" in r["kind"] or r["kind"] == "ServiceAccount"]
    assert len(of_kind(made, "ServiceAccount")) == 4
    for resource in made:
        kube.apply(resource)
    try:
        may = _AccessReview(kube, f"system:serviceaccount:{namespace}:rights-operator")
        assert may(namespace, "seaweedmq.io", "topics", "watch")
        assert may(namespace, "seaweedmq.io", "topics", "patch", "status")
        assert may(namespace, "seaweedmq.io", "segments", "create")
        assert may(namespace, "apps", "deployments", "patch", "scale")
        assert may(namespace, "coordination.k8s.io", "leases", "update", name="rights-operator")
        assert may("default", "seaweedmq.io", "topics", "list") is wide
        assert may("default", "apps", "deployments", "list") is wide
        assert not may("default", "apps", "deployments", "get")
        assert not may("default", "apps", "deployments", "patch", "scale")
        assert not may(namespace, "coordination.k8s.io", "leases", "update", name="another")
        assert not may(namespace, "seaweedmq.io", "topics", "update")
        assert not may(namespace, "", "secrets", "get")
        assert not may(namespace, "", "pods", "delete")
        assert not may("default", "", "pods", "patch")
        assert not may(namespace, "apps", "deployments", "patch")
        broker = _AccessReview(kube, f"system:serviceaccount:{namespace}:rights-broker")
        assert not broker(namespace, "", "pods", "list") and not broker(namespace, "seaweedmq.io", "topics", "get")
        admin = _AccessReview(kube, f"system:serviceaccount:{namespace}:rights-admin")
        for right in ("produce", "consume", "administer"):
            assert admin(namespace, "seaweedmq.io", "topics", "create", right, name="flights")
            assert admin("default", "seaweedmq.io", "topics", "create", right, name="flights") is wide
        assert admin(namespace, "seaweedmq.io", "topics", "delete") and admin("", "seaweedmq.io", "brokers", "update")
        assert not admin(namespace, "", "secrets", "get") and not admin(namespace, "", "pods", "list")
    finally:
        for resource in made:
            if resource["kind"].startswith("Cluster"):
                kube.delete(resource)


def test_the_operator_cannot_change_what_a_pod_runs(kube: KubeClient, namespace: str) -> None:
    """RBAC lets it patch Pods; a policy holds it to one label and one annotation of the Pods of its release."""
    made = render({"crds": {"install": False}}, name="held", namespace=namespace)
    made = [r for r in made if "Role" in r["kind"] or "Admission" in r["kind"] or r["kind"] == "ServiceAccount"]
    for resource in made:
        kube.apply(resource)
    own, other = (pod_of(name, namespace, "broker") for name in ("own", "other"))
    own["metadata"]["labels"] = {"seaweedmq.io/release": "held", "a": "b"}
    other["metadata"]["labels"] = {"seaweedmq.io/release": "another"}
    for pod in (own, other):
        kube.create(pod)
    user = f"system:serviceaccount:{namespace}:held-operator"

    def may(pod: str, change: object) -> bool:
        arguments = ["patch", "pod", pod, "-n", namespace, f"--as={user}", "--type=merge", "--dry-run=server"]
        try:
            kube.kubectl(*arguments, "-p", json.dumps(change))
        except subprocess.CalledProcessError as error:
            assert "the operator of SeaweedMQ may change" in error.stderr, error.stderr
            return False
        return True

    try:
        image = {"spec": {"containers": [{"name": own["spec"]["containers"][0]["name"], "image": "evil"}]}}
        eventually(lambda: not may("own", image), what="the policy")
        assert may("own", {"metadata": {"labels": {"seaweedmq.io/leader": "true"}}})
        assert may("own", {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "7"}}})
        assert not may("own", {"metadata": {"labels": {"app": "another"}}})
        assert not may("own", {"metadata": {"labels": {"a": None}}})
        assert not may("own", {"metadata": {"labels": {"seaweedmq.io/release": "another"}}})
        assert not may("own", {"metadata": {"annotations": {"x": ""}}})
        assert not may("own", {"metadata": {"finalizers": ["x.y/z"]}})
        assert not may("other", {"metadata": {"labels": {"seaweedmq.io/leader": "true"}}})
    finally:
        for resource in made:
            if resource["kind"].startswith("Cluster") or "Admission" in resource["kind"]:
                kube.delete(resource)


class _AccessReview:
    """Queries the API server for what a user may do."""

    def __init__(self, kube: KubeClient, user: str) -> None:
        self._kube, self._user = kube, user

    def __call__(self, namespace: str, group: str, resource: str, verb: str, sub: str = "", name: str = "") -> bool:
        permission = {
            "namespace": namespace,
            "group": group,
            "resource": resource,
            "verb": verb,
            "subresource": sub,
            "name": name,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {"user": self._user, "resourceAttributes": permission},
        }
        return bool(self._kube.create(review)["status"]["allowed"])


def _broker(namespace: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "smq-broker", "namespace": namespace}}
