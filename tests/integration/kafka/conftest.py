from collections.abc import Iterator

import pytest

from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.cluster_fixtures import client, topic
from support.processes.local_cluster import LocalCluster
from support.processes.seaweed import guarded, no_credentials, prefix, seaweed

__all__ = ["client", "cluster", "guarded", "no_credentials", "prefix", "seaweed", "topic"]


@pytest.fixture(scope="module")
def cluster(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A leader, and three brokers that serve Kafka clients at free ports."""
    folder = tmp_path_factory.mktemp("cluster")
    kafka = ("--broker-arg=--kafka=127.0.0.1:0", "--broker-arg=--kafka-session-timeout=10")
    arguments = ("--broker-memory", "1Gi", "--cleanup-interval", "200ms", *kafka)
    with LocalCluster(folder, seaweed.settings(f"kafka-{folder.name}"), arguments=arguments) as running:
        yield running
