"""The cluster that the tests here run in is a real one: Pods on two nodes, names, Services, drains, dead nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from e2e.cluster.base_image import NAME as BASE
from e2e.cluster.base_image import python_base
from e2e.cluster.binaries import BIN
from e2e.cluster.cluster import Cluster
from e2e.cluster.control_plane import PROGRAMS
from e2e.cluster.daemons import Daemons, dying_with
from e2e.cluster.image import DockerArchive
from e2e.nodes import require_nodes
from support.kube.client import KubeClient, documents
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800, func_only=True)]
IMAGE = "localhost/echo:1"
SERVER = """
import http.server, os
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(os.environ["NODE"].encode())
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("", 8080), Echo).serve_forever()
"""
WORKLOAD = f"""
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec: {{selector: {{app: echo}}, ports: [{{port: 80, targetPort: 8080}}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: echo}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: echo}}}}
  template:
    metadata: {{labels: {{app: echo}}}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector: {{matchLabels: {{app: echo}}}}
      containers:
        - name: echo
          image: {IMAGE}
          imagePullPolicy: IfNotPresent
          env: [{{name: NODE, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}]
          readinessProbe: {{httpGet: {{path: /, port: 8080}}, periodSeconds: 1}}
          securityContext: {{runAsNonRoot: true, runAsUser: 65532, readOnlyRootFilesystem: true}}
"""
QUERY = (
    "import urllib.request as u; print(u.urlopen('http://echo.default.svc.cluster.local', timeout=60).read().decode())"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_nodes()
    with Cluster(tmp_path_factory.mktemp("cluster"), nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kube(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> KubeClient:
    """The API, with the workload running on both nodes."""
    folder: Path = tmp_path_factory.mktemp("echo")
    (folder / "echo.py").write_text(SERVER)
    image = DockerArchive(IMAGE, python_base()).add(folder / "echo.py", "/app/echo.py")
    image.entrypoint("python3", "-u", "/app/echo.py").user("65532").write(folder / "echo.tar")
    cluster.load(folder / "echo.tar")
    client = KubeClient(cluster.kubeconfig, BIN / "kubectl")
    client.install_crds(list(documents(Path(__file__).parents[2] / "crds")))
    for resource in yaml.safe_load_all(WORKLOAD):
        client.create(resource)
    client.kubectl("rollout", "status", "deployment/echo")
    return client


def test_pods_run_on_both_nodes_from_the_image_on_top_of_the_base(kube: KubeClient) -> None:
    pods = kube.list("v1", "Pod", "default")
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node1", "node2"}
    assert BASE.startswith("localhost/")


def test_a_service_is_found_by_name_and_leads_to_pods_of_both_nodes(kube: KubeClient) -> None:
    pod = kube.list("v1", "Pod", "default")[0]["metadata"]["name"]

    def reached() -> set[str]:
        return {kube.kubectl("exec", pod, "--", "python3", "-c", QUERY).strip() for _ in range(4)}

    eventually(lambda: reached() == {"node1", "node2"}, what="the Service leads to both nodes")


def test_a_drain_moves_pods_and_a_dead_node_is_noticed(kube: KubeClient, cluster: Cluster) -> None:
    kube.kubectl("drain", "node2", "--ignore-daemonsets", "--delete-emptydir-data")
    kube.kubectl("rollout", "status", "deployment/echo")
    assert {p["spec"]["nodeName"] for p in kube.list("v1", "Pod", "default", fieldSelector="status.phase=Running")} == {
        "node1"
    }
    node = cluster.nodes[1]
    node.kill()
    eventually(lambda: not node.ready(), what="the dead node is not Ready")


def test_the_api_server_comes_back_where_it_was(kube: KubeClient, cluster: Cluster) -> None:
    before = kube.url
    cluster.daemons.stop("kube-apiserver")
    assert cluster.control_plane.get("/readyz") == 0
    cluster.control_plane.start_api_server()
    assert KubeClient(cluster.kubeconfig).url == before
    assert kube.list("v1", "Node")


def test_two_clusters_live_side_by_side_and_leave_nothing(cluster: Cluster, tmp_path: Path) -> None:
    with Cluster(tmp_path / "other") as other:
        assert other.control_plane.url != cluster.control_plane.url
        pids = [other.daemons.pid(name) for name in other.daemons.names()]
        assert len(pids) == 4
    assert not [pid for pid in pids if pid and Path(f"/proc/{pid}").exists()]
    assert not (tmp_path / "other").exists()


def test_a_cluster_dies_with_its_owner(tmp_path: Path) -> None:
    script = "import sys, pathlib, e2e.cluster.cluster as c\nwith c.Cluster(pathlib.Path(sys.argv[1])): input()"
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    daemons = Daemons(tmp_path, attached=False)
    try:
        eventually(lambda: daemons.alive("kube-scheduler"), what="the other cluster is up")
    finally:
        owner.kill()
        owner.wait()
    eventually(lambda: not any(map(daemons.alive, PROGRAMS)), what="its programs are gone")


@pytest.mark.parametrize(("owner", "begins"), [(os.getpid, True), (os.getppid, False)])
def test_a_program_begins_only_while_its_owner_lives(owner: Callable[[], int], begins: bool) -> None:
    """The owner may have ended before the program requests a signal for that."""
    said = subprocess.run([*dying_with(owner()), "echo", "begun"], stdout=subprocess.PIPE, check=False).stdout
    assert (said == b"begun\n") is begins
