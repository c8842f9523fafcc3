"""Spark's reader, writer and table use the filer of their options, whatever the environment names for others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import smq
from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.store_variables import VARIABLES
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

folder, leader, url, endpoint, key, secret, step = sys.argv[1:]
filer = {"filerEndpoint": endpoint, "filerRegion": "us-east-1", "filerAccessKey": key, "filerSecretKey": secret}
spark = session.start_spark(Path(folder))
spark.dataSource.register(pyspark_smq.DefaultSource)
if step == "write":
    frame = spark.createDataFrame([(bytearray(b"a"),), (bytearray(b"b"),)], "value binary")
    frame.write.format("smq").mode("append").options(leader=leader, topic="t", **filer).save()
else:
    read = spark.read.format("smq").options(leader=leader, topic="t", **filer).load()
    print("source", sorted(bytes(row.value) for row in read.collect()))
    given = {"filer_endpoint": endpoint, "filer_access_key": key, "filer_secret_key": secret}
    table = pyspark_smq.read(spark, "t", filer=url, filer_region="us-east-1", **given)
    print("table", sorted(bytes(row.value) for row in table.collect()))
spark.stop()
"""


def run(folder: Path, cluster: LocalCluster, step: str) -> str:
    store = cluster.store
    given = [
        str(folder),
        cluster.address,
        store.url,
        store.endpoint or "",
        store.access_key or "",
        store.secret_key or "",
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *given, step],
        env=environment()
        | {f"AWS_{name}": "nonsense" for name in VARIABLES}
        | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_GUARD,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_no_variable_changes_where_spark_reads_and_writes(
    s3a: SparkSession, guarded: SeaweedProcess, tmp_path: Path
) -> None:
    with LocalCluster(tmp_path, guarded.settings(f"spark-{tmp_path.name}"), brokers=2) as cluster:
        cluster.create("t", flush={"interval": "1s"})
        run(tmp_path, cluster, "write")
        keys = {"filer_access_key": cluster.store.access_key, "filer_secret_key": cluster.store.secret_key}
        with smq.connect(cluster.address, timeout=60, **keys) as client:
            wait_for_files(client, "t", 2)
        out = run(tmp_path, cluster, "read")
    assert "source [b'a', b'b']" in out and "table [b'a', b'b']" in out, out
