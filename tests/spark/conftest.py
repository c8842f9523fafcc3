"""Spark, and a cluster whose topics it reads and writes. All of it is real."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.processes.cluster_fixtures import client, cluster, topic
from support.processes.seaweed import guarded, no_credentials, prefix, seaweed
from support.spark.session import start_spark
from tools.spark_jars import HOW_TO_GET_THEM, find

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["client", "cluster", "guarded", "no_credentials", "prefix", "seaweed", "topic"]

FOLDER = Path(__file__).parent

# Tests are over before the compiler for long runs has paid off, and it takes the cores from them.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


# Spark gives a Python worker of a streaming query ten seconds to start, and no setting changes that. Beside tests that
# kill and start many processes it can take longer.
WORKER_WAS_LATE = "Python worker failed to connect back"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.flaky(reruns=3, only_rerun=[WORKER_WAS_LATE]))


@pytest.fixture(scope="package", autouse=True)
def precedence() -> Iterator[None]:
    """Of Spark and its workers over what the other tests run, where the user may give it."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    yield
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, before)


@pytest.fixture(scope="session", autouse=True)
def java_for_short_runs() -> Iterator[None]:
    """Of every Java that the tests start, also by spark-submit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {JAVA_OPTIONS}".strip())
        yield


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this folder. A test that changes a setting sets it back."""
    session = start_spark(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def s3a(spark: SparkSession) -> SparkSession:
    """The session, which can read files of S3."""
    assert find() is not None, HOW_TO_GET_THEM
    return spark
