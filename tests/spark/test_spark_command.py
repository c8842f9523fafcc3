"""`smq spark` runs a job by spark-submit, and says what is missing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import smq
from support.processes.cli import SMQ, environment
from support.processes.cli import smq as run
from support.processes.local_cluster import LocalCluster
from support.spark.topics import roll

pytestmark = [pytest.mark.spark]


@pytest.mark.slow
def test_a_job_runs_with_its_own_arguments(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush={"bytes": "64Ki", "interval": "1s"})
    with client.producer(topic) as producer:
        producer.send(b"x").result()
    roll(client, topic)
    ran = run("spark", "--master", "local[1]", "compact", "--topic", topic, "--target", "1Mi", leader=cluster.address)
    assert ran.code == 0, ran.err


def test_an_unknown_job_is_refused_with_those_that_there_are() -> None:
    ran = run("spark", "kompact", "--topic", "t")
    assert ran.code == 1 and "there is no job kompact; the jobs are" in ran.err
    assert "compact" in ran.err and "flights-hourly" in ran.err and "arguments" not in ran.err


def test_a_missing_java_is_named(tmp_path: Path) -> None:
    with_nothing = environment() | {"PATH": str(tmp_path), "JAVA_HOME": ""}
    ran = subprocess.run([*SMQ, "spark", "compact"], capture_output=True, text=True, env=with_nothing)
    assert ran.returncode == 1 and "Spark needs Java 17" in ran.stderr and os.linesep in ran.stderr
