"""Real ``smq-operator kube`` processes over a real API server, and Pods that are resources only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smq_storage.object_store.store import StoreSettings
from smq_storage.process.ports import free_port
from support.kube.client import KubeClient
from support.processes.broker import BrokerProcess
from support.processes.leader import LeaderProcess

RELEASE = "smq"
LABELS = {"seaweedmq.io/release": RELEASE}


class OperatorProcess(LeaderProcess):
    """One operator of a release in ``namespace``, whose Topics it leads. Its Pod is a resource that the test makes."""

    def __init__(
        self, folder: Path, kube: KubeClient, store: StoreSettings, namespace: str, *, kubeconfig: Path | None = None
    ) -> None:
        super().__init__(folder, store, brokers=0)
        self.kube, self.namespace = kube, namespace
        self.pod = f"{RELEASE}-operator-{uuid.uuid4().hex[:5]}"
        self._kubeconfig = kubeconfig or kube.kubeconfig
        self._http_port = free_port()

    def launch(self, *flags: str) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / f"{self.pod}-{uuid.uuid4().hex[:6]}.log"
        self.http = f"127.0.0.1:{self._http_port}"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SMQ_", "POD_", "KUBE"))}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "smq_operator.main", "kube", "--release", RELEASE),
                    *("--namespace", self.namespace, "--listen", f"127.0.0.1:{self._port}", "--http", self.http),
                    *("--log-level", "debug", *flags),
                ],
                env=clean
                | self.store.to_env()
                | {
                    "KUBECONFIG": str(self._kubeconfig),
                    "POD_NAME": self.pod,
                    "POD_NAMESPACE": self.namespace,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self._process

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    @property
    def listen(self) -> str:
        """Where it answers, whether it leads or not."""
        return f"127.0.0.1:{self._port}"

    def create_pod(self) -> dict[str, Any]:
        """The Pod that it thinks it runs in."""
        container = {"name": "operator", "image": "none", "ports": [{"name": "grpc", "containerPort": self._port}]}
        return self.kube.create(pod_of(self.pod, self.namespace, "operator", containers=[container]))

    def annotate_address(self) -> None:
        """What a kubelet would write: where this operator's Pod is reached."""
        status = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        self.kube.patch(pod_of(self.pod, self.namespace, "operator"), {"status": status}, status=True)

    @property
    def is_labelled_leader(self) -> bool:
        """Whether its Pod has the label that the Service selects."""
        pod = self.kube.get(pod_of(self.pod, self.namespace, "operator"))
        return pod["metadata"]["labels"].get("seaweedmq.io/leader") == "true"

    @property
    def ready(self) -> bool:
        return self.http_get("/readyz")[0] == 200


def pod_of(name: str, namespace: str, component: str, **spec: Any) -> dict[str, Any]:
    """A Pod of the release; on no Node, unless ``nodeName`` says so, so nothing ever runs it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": LABELS | {"seaweedmq.io/component": component, "seaweedmq.io/pool": "default"},
        },
        "spec": {
            "containers": [{"name": component, "image": "none"}],
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
        }
        | spec,
    }


def deployment_of(
    namespace: str, component: str = "broker", *, release: str = RELEASE, name: str = "", **annotations: str
) -> dict[str, Any]:
    """A Deployment that makes Pods which nobody runs; ``annotations`` without ``seaweedmq.io/``, '_' for '-'."""
    labels = LABELS | {"seaweedmq.io/release": release, "seaweedmq.io/component": component}
    container = {"name": component, "image": "none", "resources": {"limits": {"cpu": "2"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name or f"{release}-{component}",
            "namespace": namespace,
            "labels": labels | {"seaweedmq.io/pool": "default"},
            "annotations": {f"seaweedmq.io/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels | {"seaweedmq.io/pool": "default"}},
                "spec": {"containers": [container], "schedulerName": "nobody"},
            },
        },
    }


def broker_in_pod(
    pod: Mapping[str, Any], folder: Path, store: StoreSettings, leader: str, *flags: str
) -> BrokerProcess:
    """A real broker process that says it is that Pod's."""
    metadata = pod["metadata"]
    return BrokerProcess(
        folder, metadata["name"], store, "--leader", leader, "--pod-uid", metadata["uid"], "--memory", "256Mi", *flags
    )


def topic(namespace: str, name: str = "t", **spec: Any) -> dict[str, Any]:
    """A small Topic resource."""
    return {
        "apiVersion": "seaweedmq.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"partitions": 64} | spec,
    }
