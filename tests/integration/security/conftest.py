from __future__ import annotations

from collections.abc import Iterator

import pytest

from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.cluster_fixtures import topic
from support.processes.seaweed import seaweed
from support.processes.secure_cluster import SecureCluster
from support.processes.short_lives import Lives

__all__ = ["seaweed", "topic"]


@pytest.fixture(scope="package")
def cluster(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """A secure leader and two brokers."""
    folder = tmp_path_factory.mktemp("secure")
    with SecureCluster(folder, seaweed.settings(f"secure-{folder.name}")) as running:
        yield running


@pytest.fixture(scope="package")
def short_lived(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """The same, where certificates live for six seconds and grants for four. Brokers serve Kafka clients, too."""
    folder = tmp_path_factory.mktemp("short")
    lives, more = Lives(client=6, grant=4), ("--broker-arg=--kafka=127.0.0.1:0",)
    with SecureCluster(folder, seaweed.settings(f"short-{folder.name}"), lives=lives, more=more) as running:
        yield running
