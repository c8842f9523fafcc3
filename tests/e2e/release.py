"""One release of the chart in a cluster, and what users do with it."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import helm_python as helm

import smq
from e2e.cluster.binaries import BIN
from e2e.cluster.cluster import Cluster
from e2e.images import product
from e2e.kind.kind import KindCluster
from smq_core.model.addresses import join_address
from support.kube.chart import CHART, merged
from support.kube.client import KubeClient
from support.waiting import HANG_GUARD, eventually

NAME = "smq"
# The Namespace of the release and, unless a test makes its own, of the topics.
SPACE = "queue"

SMALL = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
# Collection in the time of a test.
SHORT_PROBES = ["--cleanup-interval=2s", "--deleted-topics-grace=5s"]

# The CPU request decides how much traffic calls for one more broker; most tests make less.
BROKER = SMALL | {"requests": {"cpu": "300m", "memory": "256Mi"}}


def values(store_node: str) -> dict[str, Any]:
    """Small Pods of the images of :mod:`e2e.images`. The store stays on one node, so that the other can be drained."""
    image = {part: {"repository": product.name(part).rpartition(":")[0], "tag": "e2e"} for part in product.PARTS}
    repository, _, tag = product.SEAWEED.rpartition(":")
    return {
        "seaweedfs": {
            "enabled": True,
            "image": {"repository": repository, "tag": tag},
            "persistence": {"enabled": False},
            "nodeSelector": {"kubernetes.io/hostname": store_node},
        },
        "security": {"mode": "disabled"},  # tests that are about security have a release with it
        "external": {"enabled": True, "type": "NodePort"},
        "operator": {"image": image["operator"], "replicas": 2, "resources": SMALL, "extraArgs": SHORT_PROBES},
        "brokers": {"image": image["broker"], "min": 3, "max": 5, "capacity": "50Mi", "resources": BROKER},
    }


class Release:
    """``kube`` is the API as admin. Clients here reach Pods and Services by this machine's routes to them."""

    def __init__(self, cluster: Cluster | KindCluster, *, name: str = NAME, namespace: str = SPACE) -> None:
        self.cluster = cluster
        self.name, self.namespace = name, namespace
        self.nodes = cluster.node_names
        self.values = values(self.nodes[0])
        self.kube = KubeClient(cluster.kubeconfig, own if (own := BIN / "kubectl").exists() else None)

    def install(self, labels: Mapping[str, str] = MappingProxyType({})) -> None:
        """Installs it, or upgrades what is there, and waits until every Pod is ready. The Namespace gets the labels."""
        metadata = {"name": self.namespace, "labels": dict(labels)}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.kube.apply(namespace)
        with self._helm() as (config, chart):
            if any(found["name"] == self.name for found in config.list()):
                config.upgrade(chart, self.name, self.values, timeout=int(HANG_GUARD))
                if not os.environ.get("SMQ_E2E_KEEP_IMAGES"):
                    self.kube.kubectl("-n", self.namespace, "rollout", "restart", "deployment")
            else:
                config.install(chart, self.name, self.values, timeout=int(HANG_GUARD))
        self.wait_ready()

    def upgrade(self, changed: Mapping[str, Any], folder: Path = CHART) -> None:
        """``helm upgrade`` with other values, to the chart in ``folder``; a mapping replaces only what it names."""
        with self._helm(folder) as (config, chart):
            config.upgrade(chart, self.name, merged(self.values, changed), timeout=int(HANG_GUARD))

    def test(self) -> str:
        """``helm test``. Raises HelmError; returns the log of its Pod."""
        with self._helm() as (config, _):
            config.test(self.name, timeout=int(HANG_GUARD))
        return ""

    def uninstall(self) -> None:
        with self._helm() as (config, _):
            config.uninstall(self.name, timeout=int(HANG_GUARD))

    def wait_ready(self) -> None:
        """A leader leads, and as many brokers as there are to be at least are ready. Fails with what Pods say."""
        try:
            eventually(self._ready, what="the release is ready", pause=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error

    def _ready(self) -> bool:
        enough = self.deployment("broker")["spec"]["replicas"] >= self.values["brokers"]["min"]
        operators = self.deployment("operator")["status"]
        led = operators.get("readyReplicas", 0) == operators.get("updatedReplicas", 0) == operators.get("replicas", -1)
        return bool(self.rolled_out() and enough and led and self.leader())

    def rolled_out(self) -> bool:
        """Every broker is of the Deployment's newest generation, and ready."""
        fleet = self.deployment("broker")
        status, wanted = fleet.get("status", {}), fleet["spec"]["replicas"]
        current = status.get("observedGeneration") == fleet["metadata"]["generation"]
        return bool(current and status.get("updatedReplicas") == status.get("replicas") == wanted) and (
            status.get("readyReplicas", 0) == wanted
        )

    def describe(self) -> str:
        """What the Pods of the release say, for a test that failed."""
        said = [self.kube.kubectl("-n", self.namespace, "get", "pods,leases,topics,segments", "-o", "wide")]
        for pod in self.kube.list("v1", "Pod", self.namespace):
            name = pod["metadata"]["name"]
            with contextlib.suppress(Exception):
                said.append(f"--- {name}\n" + self.kube.kubectl("-n", self.namespace, "logs", name, "--tail=15"))
        return "\n".join(said)

    def deployment(self, part: str) -> dict[str, Any]:
        named = {"name": f"{self.name}-{part}", "namespace": self.namespace}
        return self.kube.get({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": named})

    def pods(self, part: str) -> list[dict[str, Any]]:
        """Those that are not on their way out, the oldest first."""
        found = self.kube.list("v1", "Pod", self.namespace, labelSelector=f"seaweedmq.io/component={part}")
        living = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(living, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def leader(self) -> str | None:
        """The Pod that the Service leads to."""
        found = self.kube.list("v1", "Pod", self.namespace, labelSelector="seaweedmq.io/leader=true")
        ready = [p for p in found if "deletionTimestamp" not in p["metadata"] and is_ready(p)]
        return ready[0]["metadata"]["name"] if len(ready) == 1 else None

    def kill(self, pod: str) -> None:
        """As a crash: no signal that it could answer to, no time."""
        self.kube.kubectl("-n", self.namespace, "delete", "pod", pod, "--force", "--grace-period=0", "--wait=false")

    def connect(self) -> smq.Client:
        """A client that comes by the leader's Service. The filer's name means nothing outside: it gets its address."""
        filer = f"http://{self.address(f'{self.name}-seaweedfs', 8333)}"
        leader = self.address(self.name, 7070)
        return smq.connect(leader, namespace=self.namespace, timeout=60, filer_url="s3://smq", filer_endpoint=filer)

    def connect_outside(self, family: int = 0) -> smq.Client:
        """A client that has only the address of the external Service."""
        return smq.connect(
            via=self.address(f"{self.name}-external", 7072, family), namespace=self.namespace, timeout=60
        )

    def address(self, service: str, port: int, family: int = 0) -> str:
        """Where a port of a Service of the release is; of two families, the first is the cluster's main one."""
        named = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": service, "namespace": self.namespace}}
        return join_address(self.kube.get(named)["spec"]["clusterIPs"][family], port)

    def topic(self, name: str, **spec: Any) -> dict[str, Any]:
        """Applies a Topic and waits until it is Ready; returns it as the API server has it."""
        named = {"name": name, "namespace": self.namespace}
        topic = {"apiVersion": "seaweedmq.io/v1alpha1", "kind": "Topic", "metadata": named, "spec": spec}
        self.kube.apply(topic)
        eventually(lambda: condition(self.kube.get(topic), "Ready") == "True", what=f"{name} is Ready", pause=0.2)
        return self.kube.get(topic)

    def segments(self, topic: str, phase: str = "Open") -> list[dict[str, Any]]:
        found = self.kube.list("seaweedmq.io/v1alpha1", "Segment", self.namespace)
        return [s for s in found if s["spec"]["topic"] == topic and s.get("status", {}).get("phase") == phase]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Events about a resource, the oldest first."""
        found = self.kube.list("v1", "Event", self.namespace, fieldSelector=f"involvedObject.name={name}")
        return sorted(found, key=lambda e: e["metadata"]["creationTimestamp"])

    @contextlib.contextmanager
    def _helm(self, folder: Path = CHART) -> Iterator[tuple[helm.Config, helm.Chart]]:
        with (
            helm.Config(kubeconfig_path=str(self.cluster.kubeconfig), namespace=self.namespace) as config,
            helm.Chart.load(folder) as chart,
        ):
            yield config, chart


def unique(word: str) -> str:
    """A name that no other test uses."""
    return f"{word}-{uuid.uuid4().hex[:6]}"


def condition(resource: Mapping[str, Any], kind: str) -> str | None:
    """The status of a condition: True, False, Unknown, or None when there is none."""
    found = resource.get("status", {}).get("conditions", [])
    return next((c["status"] for c in found if c["type"] == kind), None)


def is_ready(pod: Mapping[str, Any]) -> bool:
    return condition(pod, "Ready") == "True"
