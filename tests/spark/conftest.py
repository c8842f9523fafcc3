"""Spark, and a cluster whose topics it reads and writes. All of it is real."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.processes.cluster_fixtures import client, cluster, topic
from support.processes.seaweed import guarded, no_credentials, prefix, seaweed
from support.spark.session import start_spark
from tools.spark_jars import HOW_TO_GET_THEM, find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["client", "cluster", "guarded", "no_credentials", "prefix", "seaweed", "topic"]


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
