import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster
from support.processes.seaweed import guarded, no_credentials, prefix, seaweed

__all__ = ["guarded", "no_credentials", "prefix", "seaweed"]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A leader and three brokers for the tests of one module; each test takes a topic of its own."""
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, seaweed.settings(f"client-{folder.name}")) as running:
        yield running


@pytest.fixture
def own_cluster(seaweed: SeaweedProcess, prefix: str, tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster that the test may ruin."""
    with LocalCluster(tmp_path / "cluster", seaweed.settings(prefix)) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[smq.Client]:
    with cluster.connect() as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"topic-{next(_numbers)}"
