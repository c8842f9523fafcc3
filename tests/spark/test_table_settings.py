"""``pyspark_smq.read`` finds the files with the credentials it is given, prints none, and says what Spark lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyspark_smq
import smq
from pyspark_smq.errors import InvalidOption
from smq_core.errors import InvalidRequest, UnknownTopic
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.cli import environment
from support.processes.local_cluster import LocalCluster
from support.spark.topics import wait_for_files
from support.waiting import HANG_GUARD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]

PROGRAM = """
import sys
from pathlib import Path
import pyspark_smq
from support.spark import session

folder, jars, url, endpoint, key, secret = sys.argv[1:]
if jars == "without":
    session.find = lambda: None
spark = session.start_spark(Path(folder))
frame = pyspark_smq.read(
    spark, "t", filer=url, filer_endpoint=endpoint, filer_access_key=key, filer_secret_key=secret
)
frame.explain(True)
print(sorted(bytes(row.value) for row in frame.collect()))
spark.stop()
print("ended")
"""


def run(folder: Path, jars: str, cluster: LocalCluster) -> subprocess.CompletedProcess[str]:
    """The program's output, standard error included. Its driver has no credentials but its arguments."""
    store = cluster.store
    arguments = [str(folder), jars, store.url, store.endpoint or "", store.access_key or "", store.secret_key or ""]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment() | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_GUARD,
        check=False,
    )


@pytest.fixture(scope="module")
def closed_cluster(guarded: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> LocalCluster:
    """A cluster that has ended. Its filer takes its own credentials only, and has the topic ``t`` with 3 messages."""
    folder = tmp_path_factory.mktemp("closed")
    with LocalCluster(folder, guarded.settings(f"spark-{folder.name}"), brokers=2) as running:
        running.create("t", flush={"interval": "1s"})
        store = running.store
        keys = {"filer_access_key": store.access_key, "filer_secret_key": store.secret_key}
        with smq.connect(running.address, timeout=60, **keys) as client, client.producer("t") as producer:
            for value in (b"a", b"b", b"c"):
                producer.send(value)
            producer.flush()
            wait_for_files(client, "t", 3)
    return running


@pytest.mark.slow
def test_credentials_open_the_files_and_are_not_printed(
    s3a: SparkSession, closed_cluster: LocalCluster, tmp_path: Path
) -> None:
    done = run(tmp_path, "with", closed_cluster)
    assert done.returncode == 0, done.stdout
    assert "[b'a', b'b', b'c']" in done.stdout and "Parquet" in done.stdout
    assert closed_cluster.store.secret_key == "secret"
    assert "secret" not in done.stdout.lower().replace("filersecretkey", ""), "the name of the option may be shown"


@pytest.mark.slow
def test_without_s3a_the_error_says_what_to_install(closed_cluster: LocalCluster, tmp_path: Path) -> None:
    done = run(tmp_path, "without", closed_cluster)
    assert done.returncode != 0
    assert (
        "SparkNotSupported" in done.stdout and "spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0" in done.stdout
    )


def test_a_bucket_of_the_same_name_elsewhere_is_refused(
    s3a: SparkSession, cluster: LocalCluster, closed_cluster: LocalCluster, topic: str
) -> None:
    cluster.create(topic)
    with cluster.connect() as client, client.producer(topic) as producer:
        producer.send(b"x").result()
    pyspark_smq.release(pyspark_smq.read(s3a, topic, leader=cluster.address))
    store = closed_cluster.store
    with pytest.raises(InvalidRequest, match="in another application"):
        pyspark_smq.read(
            s3a,
            "t",
            filer=store.url,
            filer_endpoint=store.endpoint,
            filer_access_key=store.access_key,
            filer_secret_key=store.secret_key,
        )


def test_mistakes_are_said_at_once(s3a: SparkSession, cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic)
    with pytest.raises(UnknownTopic):
        pyspark_smq.read(s3a, "no-such-topic", leader=cluster.address)
    with pytest.raises(InvalidOption, match="did you mean 'value'"):
        pyspark_smq.read(s3a, topic, leader=cluster.address, columns=["valeu"])
    with pytest.raises(InvalidOption, match="no such segment"):
        pyspark_smq.read(s3a, topic, leader=cluster.address, start={"t-0-64-99": 1})
    with pytest.raises(InvalidOption, match="start must be"):
        pyspark_smq.read(s3a, topic, leader=cluster.address, start="latest")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="release takes the DataFrame"):
        pyspark_smq.release(s3a.range(1))
