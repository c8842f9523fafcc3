"""Kubeflow's Spark operator, installed by its own chart, and SparkApplications of examples/spark/kubeflow."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import helm_python as helm
import yaml

from e2e.cluster.binaries import SPARK_OPERATOR
from e2e.images import spark as spark_image
from e2e.images.spark_operator import REPOSITORY
from e2e.spark_applications import EXAMPLES, SMALL, SPACE
from support.kube.client import KubeClient
from support.waiting import HANG_GUARD, eventually

API = "sparkoperator.k8s.io/v1beta2"
NAME = NAMESPACE = "spark-operator"
# As docs/spark.md has it, with the image that is built here. Without a request of CPU, a submission takes minutes.
VALUES = {
    "image": {"registry": "localhost", "repository": REPOSITORY, "tag": SPARK_OPERATOR.version},
    "spark": {"jobNamespaces": [SPACE]},
    "controller": {"resources": {"requests": {"cpu": "500m"}}},
}


class SparkOperator:
    """The operator, its definitions and its webhook, for the Namespace of applications."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube

    def install(self) -> None:
        """By Helm, then examples/spark/kubeflow-rbac.yaml by kubectl. Returns when its Pods are ready."""
        chart = SPARK_OPERATOR.source() / "charts" / "spark-operator-chart"
        with self._helm() as config:
            config.install(str(chart), NAME, VALUES, timeout=int(HANG_GUARD), create_namespace=True, wait="legacy")
        self._kube.kubectl("-n", SPACE, "apply", "-f", str(EXAMPLES / "kubeflow-rbac.yaml"))

    def uninstall(self) -> None:
        """With its definitions, which Helm leaves."""
        with self._helm() as config:
            config.uninstall(NAME, timeout=int(HANG_GUARD))
        found = self._kube.kubectl("get", "crd", "-o", "name").split()
        self._kube.kubectl("delete", *(name for name in found if name.endswith(".sparkoperator.k8s.io")))
        self._kube.kubectl("delete", "namespace", NAMESPACE)

    def apply(self, stem: str, name: str, arguments: Sequence[str], settings: Mapping[str, str], **spec: Any) -> None:
        """An example with what a user changes: names, image and settings; ``spec`` is what else. Strict, as kubectl."""
        resource = yaml.safe_load((EXAMPLES / "kubeflow" / f"{stem}.yaml").read_text())
        resource["metadata"] = {"name": name, "namespace": SPACE}
        resource["spec"] |= spec
        application = resource["spec"].get("template", resource["spec"])
        application |= {"image": spark_image.NAME, "arguments": list(arguments)}
        application["sparkConf"] = application.get("sparkConf", {}) | SMALL | dict(settings)
        application["executor"]["instances"] = 1
        self._kube.create(resource)

    def state(self, name: str) -> str:
        """That of a SparkApplication; empty before the operator has seen it."""
        return str(self._status("SparkApplication", name).get("applicationState", {}).get("state", ""))

    def driver(self, name: str) -> str:
        """The name of the Pod of its driver."""
        return f"{name}-driver"

    def first_run(self, name: str) -> str:
        """The name of the first SparkApplication that a ScheduledSparkApplication makes."""

        def made() -> str:
            return str(self._status("ScheduledSparkApplication", name).get("lastRunName", ""))

        return eventually(made, what=f"{name} is due", pause=0.5)

    def finish(self, name: str) -> str:
        """The log of the driver when the application is completed."""
        state = eventually(lambda: self._ended(name), what=f"{name} ends", pause=0.5)
        assert state == "COMPLETED", f"{name} is {state}"
        return self._kube.kubectl("-n", SPACE, "logs", self.driver(name))

    @contextlib.contextmanager
    def removing(self, kind: str, name: str) -> Iterator[None]:
        """Deletes the resource after the block, and with it its Pods. A failure there shows what the operator says."""
        try:
            yield
        except BaseException as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error
        finally:
            self._kube.kubectl("-n", SPACE, "delete", kind, name)

    def describe(self) -> str:
        """What is there, and the ends of all logs, for a test that failed."""
        said = [self._kube.kubectl("-n", SPACE, "get", "sparkapplications,pods", "-o", "wide")]
        for application in self._kube.list(API, "SparkApplication", SPACE):
            said.append(json.dumps(application.get("status"), indent=1))
        for namespace in (NAMESPACE, SPACE):
            for pod in self._kube.list("v1", "Pod", namespace):
                name = pod["metadata"]["name"]
                with contextlib.suppress(subprocess.CalledProcessError):
                    said.append(f"--- {name}\n" + self._kube.kubectl("-n", namespace, "logs", name, "--tail=60"))
        return "\n".join(said)

    def _ended(self, name: str) -> str | None:
        state = self.state(name)
        return state if state in ("COMPLETED", "FAILED") else None

    def _status(self, kind: str, name: str) -> dict[str, Any]:
        named = {"name": name, "namespace": SPACE}
        found = self._kube.find({"apiVersion": API, "kind": kind, "metadata": named}) or {}
        status: dict[str, Any] = found.get("status", {})
        return status

    @contextlib.contextmanager
    def _helm(self) -> Iterator[helm.Config]:
        with helm.Config(kubeconfig_path=str(self._kube.kubeconfig), namespace=NAMESPACE) as config:
            yield config
