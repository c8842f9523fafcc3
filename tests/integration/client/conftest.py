from collections.abc import Iterator
from pathlib import Path

import pytest

from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.cluster_fixtures import client, cluster, topic
from support.processes.local_cluster import LocalCluster
from support.processes.seaweed import guarded, no_credentials, prefix, seaweed

__all__ = ["client", "cluster", "guarded", "no_credentials", "prefix", "seaweed", "topic"]


@pytest.fixture
def own_cluster(seaweed: SeaweedProcess, prefix: str, tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster that the test may ruin."""
    with LocalCluster(tmp_path / "cluster", seaweed.settings(prefix)) as running:
        yield running
