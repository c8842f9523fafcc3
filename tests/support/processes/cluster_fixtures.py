"""Fixtures for tests that share a cluster; a conftest imports them, beside those of ``seaweed``.

Its folder is a package, so that the cluster ends with the folder's last test and not with the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster

_numbers = itertools.count()


@pytest.fixture(scope="package")
def cluster(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A leader and three brokers for all tests that let them run; each takes its own topic."""
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, seaweed.settings(f"shared-{folder.name}")) as running:
        yield running


@pytest.fixture(scope="module", name="cluster")
def cluster_of_module(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The same for a module that imports it, because its tests kill processes."""
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, seaweed.settings(f"shared-{folder.name}")) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[smq.Client]:
    with cluster.connect() as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"topic-{next(_numbers)}"
