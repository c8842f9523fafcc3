"""Fixtures with a real Kubernetes API. A conftest.py that imports them offers them to its folder."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.binaries import BIN, KUBE, NotBuilt, require
from e2e.cluster.cluster import Cluster
from support.kube.client import KubeClient, documents
from support.waiting import eventually

CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture(scope="package")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """etcd, API server, controller manager and scheduler for all tests of a folder: no node, so no Pod ever runs.

    With SMQ_E2E set to the folder of a cluster that runs already, that one is used.
    """
    if running := os.environ.get("SMQ_E2E"):
        yield Cluster.running(Path(running))
        return
    try:
        require(KUBE)
    except NotBuilt as missing:
        pytest.fail(str(missing))  # tests/conftest.py leaves these tests out on a developer's machine
    with Cluster(tmp_path_factory.mktemp("api-server")) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def kube(api_server: Cluster) -> KubeClient:
    """The API as admin, with the project's kinds."""
    client = KubeClient(api_server.kubeconfig, BIN / "kubectl")
    client.install_crds(list(documents(CRDS)))
    return client


@pytest.fixture
def namespace(kube: KubeClient) -> Iterator[str]:
    """A Namespace that only this test uses."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    resource = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    kube.create(resource)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
    eventually(lambda: kube.find(account), what="a controller has given it the account that Pods need")
    yield name
    kube.delete(resource)
