"""The commands of kubectl and spark-submit on the pages about releases and Spark, on a real API server without nodes.

Namespaces have other names, which only the test uses.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.binaries import BIN
from support.doc_blocks import REPOSITORY, console_blocks, fenced, run_commands
from support.kube.chart import of_kind, render
from support.kube.client import KubeClient

pytestmark = [pytest.mark.integration, pytest.mark.slow]

COMMANDS = {
    page: [command for block in console_blocks(f"docs/{page}.md") for command, _ in block]
    for page in ("configuration", "maintenance", "operations", "spark", "spark-pipeline")
}
NAMESPACES = re.compile(r"(--namespace |namespace |namespace=|-n )(?:spark|queue)\b")


class Shell:
    """Bash in the repository, with kubectl and spark-submit, and with ``namespace`` in place of the page's."""

    def __init__(self, kube: KubeClient, namespace: str, folder: Path) -> None:
        conf = folder / "conf"
        conf.mkdir()
        # No node runs a driver, so nobody waits for its end.
        (conf / "spark-defaults.conf").write_text("spark.kubernetes.submission.waitAppCompletion false\n")
        self._namespace = namespace
        self._environment = os.environ | {
            "KUBECONFIG": str(kube.kubeconfig),
            "KUBECACHEDIR": str(folder / "kubectl-cache"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(conf),
        }

    def run(self, command: str, **environment: str) -> str:
        """The output of one command, which must be successful."""
        own = NAMESPACES.sub(rf"\g<1>{self._namespace}", command)
        ((output, code),) = run_commands([own], REPOSITORY, self._environment | environment)
        assert code == 0, (own, output)
        return output


@pytest.fixture
def shell(kube: KubeClient, namespace: str, tmp_path: Path) -> Shell:
    return Shell(kube, namespace, tmp_path)


def commands(page: str, start: str) -> list[str]:
    """Those of the page that begin so."""
    return [command for command in COMMANDS[page] if command.startswith(start)]


def test_every_command_of_kubectl_is_run_by_a_test_of_this_folder() -> None:
    """The port is forwarded to a running Pod only, so the chart's tests compare its number.

    The application of Spark's operator (the last two) needs that operator: tests/e2e/test_spark_operator.py runs it.
    """
    found = {page: [command.split()[1] for command in commands(page, "kubectl")] for page in COMMANDS}
    assert found == {
        "configuration": ["rollout"],
        "maintenance": ["rollout", "drain"],
        "operations": ["port-forward"],
        "spark": ["create", "apply", "create", "create", "create", "apply", "apply", "apply", "get"],
        "spark-pipeline": ["apply"],
    }


def test_a_rollout_and_a_drain(kube: KubeClient, namespace: str, shell: Shell) -> None:
    for made in of_kind(render({}, namespace=namespace), "Deployment").values():
        kube.apply(made | {"spec": made["spec"] | {"replicas": 0}})  # nobody runs its Pods
    (status,), (restart,) = (commands(page, "kubectl rollout") for page in ("configuration", "maintenance"))
    assert "successfully rolled out" in shell.run(status)
    assert "restarted" in shell.run(restart)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{namespace}"}}
    kube.create(node)
    try:
        (drain,) = commands("maintenance", "kubectl drain")
        assert "drained" in shell.run(drain.replace("NODE", node["metadata"]["name"]))
        assert kube.get(node)["spec"]["unschedulable"]
    finally:
        kube.delete(node)


def test_the_topics_of_the_pipeline_are_applied(kube: KubeClient, namespace: str, shell: Shell) -> None:
    (apply,) = commands("spark-pipeline", "kubectl apply")
    shell.run(apply)
    topics = kube.list("seaweedmq.io/v1alpha1", "Topic", namespace)
    assert {topic["metadata"]["name"] for topic in topics} == {"flights", "flights-hourly"}


@pytest.fixture
def spark_namespace(kube: KubeClient, namespace: str) -> Iterator[str]:
    """The name of a Namespace that the commands of the page create."""
    name = f"{namespace}-spark"
    yield name
    kube.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


@pytest.fixture
def account(kube: KubeClient, spark_namespace: str, tmp_path: Path) -> Callable[[], Path]:
    """Writes a kubeconfig of the page's account, which may do no more than its Role says."""

    def kubeconfig() -> Path:
        token = kube.kubectl("-n", spark_namespace, "create", "token", "spark", "--duration=1h").strip()
        config = yaml.safe_load(kube.kubeconfig.read_text())
        for user in config["users"]:
            user["user"] = {"token": token}
        path = tmp_path / "spark.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    return kubeconfig


@pytest.mark.spark
def test_the_jobs_are_submitted(
    kube: KubeClient, spark_namespace: str, tmp_path: Path, account: Callable[[], Path]
) -> None:
    shell = Shell(kube, spark_namespace, tmp_path)
    create, *others = commands("spark", "kubectl create")
    account_and_rights, rights_on_topics, rights_of_operator, _ = commands("spark", "kubectl apply")
    for command in (create, account_and_rights, *others, rights_on_topics, rights_of_operator):
        shell.run(command)
    submitter = account()
    blocks = [fenced(f"docs/{page}.md", "bash") for page in ("spark", "spark-pipeline")]
    for block in (block for found in blocks for block in found if block.startswith("spark-submit")):
        submit, _, logs = block.rpartition("\nkubectl logs")
        shell.run(submit, KUBECONFIG=str(submitter))
        (name,) = re.findall(r"--name (\S+)", submit)
        (program,) = re.findall(r"local:///app/jobs/\w+\.py", submit)
        where = {"name": name, "namespace": spark_namespace}
        pod: dict[str, Any] = kube.get({"apiVersion": "v1", "kind": "Pod", "metadata": where})
        assert pod["spec"]["serviceAccountName"] == "spark"
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"], "the Pod template is used"
        assert program in container["args"]
        (mounted,) = [it["mountPath"] for it in container["volumeMounts"] if it["name"] == "smq"]
        variables = kube.get(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "smq-client", "namespace": spark_namespace}}
        )["data"]
        assert variables == {"SMQ_CA_FILE": f"{mounted}/ca.crt", "SMQ_TOKEN_FILE": f"{mounted}/token"}
        shell.run(f"kubectl logs{logs}".strip())
