"""The cluster with two nodes and the release in it that the tests of the product share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from e2e.images import spark as spark_image
from e2e.images.product import archives
from e2e.kind.kind import KindCluster
from e2e.nodes import load_images, require_nodes
from e2e.release import Release
from e2e.spark_applications import SparkApplications
from support.spark.java import HOW_TO_GET_IT, find_java


@pytest.fixture(scope="session")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster | KindCluster]:
    """With the images of the product. With SMQ_E2E set to the folder of a cluster that runs already, that one.

    SMQ_E2E_CLUSTER=kind takes one of kind (tests/e2e/kind). SMQ_E2E_KEEP_IMAGES leaves the images of a running one as
    they are, which saves minutes while tests are written.
    """
    if running := os.environ.get("SMQ_E2E"):
        cluster = Cluster.running(Path(running))
        if not os.environ.get("SMQ_E2E_KEEP_IMAGES"):
            load_images(cluster, archives())
        yield cluster
        return
    if os.environ.get("SMQ_E2E_CLUSTER") == "kind":
        with KindCluster(tmp_path_factory.mktemp("kind")) as kind:
            load_images(kind, archives())
            yield kind
        return
    require_nodes()
    with Cluster(tmp_path_factory.mktemp("two-nodes"), nodes=2) as cluster:
        load_images(cluster, archives())
        yield cluster


@pytest.fixture(scope="session")
def release(two_nodes: Cluster | KindCluster) -> Iterator[Release]:
    """The chart, installed with its own SeaweedFS; every Pod is ready."""
    release = Release(two_nodes)
    release.install()
    yield release
    if not os.environ.get("SMQ_E2E"):  # otherwise the cluster is kept, to inspect what is left
        release.uninstall()


@pytest.fixture(scope="session")
def spark(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkApplications]:
    """The Namespace of applications of Spark beside the release, and their image on the nodes."""
    if find_java() is None:
        pytest.skip(HOW_TO_GET_IT)
    try:
        load_images(release.cluster, [spark_image.archive()])
    except spark_image.NotBuildable as missing:
        pytest.skip(str(missing))
    applications = SparkApplications(release.kube, tmp_path_factory.mktemp("spark"))
    applications.install()
    yield applications
    if not os.environ.get("SMQ_E2E"):
        applications.uninstall()
