"""Spark, and a cluster whose topics it reads and writes. All of it is real."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.local_cluster import LocalCluster
from support.processes.seaweed import guarded, no_credentials, prefix, seaweed
from support.spark.session import start_spark
from tools.spark_jars import HOW_TO_GET_THEM, find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["guarded", "no_credentials", "prefix", "seaweed"]

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this process. A test that changes a setting sets it back."""
    session = start_spark(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def s3a(spark: SparkSession) -> SparkSession:
    """The session, which can read files of S3."""
    assert find() is not None, HOW_TO_GET_THEM
    return spark


@pytest.fixture(scope="module")
def cluster(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A leader and three brokers for the tests of one module; each test takes a topic of its own."""
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, seaweed.settings(f"spark-{folder.name}")) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[smq.Client]:
    with cluster.connect() as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"topic-{next(_numbers)}"
