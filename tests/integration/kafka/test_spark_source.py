"""Spark's own Kafka source reads a topic over splits and merges, at a limited rate, and again from its checkpoint."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import smq
from benchmarks.harness import tools
from benchmarks.peers.kafka_clients import HERE as PEERS
from integration.kafka.clients import PARTITIONS, bootstrap, producer_of
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROGRAM = Path(__file__).parent / "spark_stream.py"
ROWS = 600
MAX_OFFSETS = 150


@pytest.fixture(scope="module")
def spark() -> tuple[str, str]:
    """The interpreter with that Spark, and the folder of its jars."""
    if os.environ.get("CI"):
        pytest.skip("another Spark than that of the project is fetched, which the checks do without")
    try:
        return str(tools.venv(PEERS / "spark-kafka.txt") / "python"), str(
            tools.jars(PEERS / "spark-kafka-pom.xml", "spark-kafka-4.0.0")
        )
    except tools.ToolMissing as error:
        pytest.skip(str(error))


@pytest.mark.timeout(10 * HANG_GUARD)
def test_each_message_is_read_once(
    cluster: LocalCluster, client: smq.Client, topic: str, spark: tuple[str, str], tmp_path: Path
) -> None:
    cluster.create(topic, partitioner="Kafka", partitions=PARTITIONS, segments={"max": 8}, flush={"interval": "200ms"})
    admin = client.admin()
    producer = producer_of(cluster)

    def change(action: Callable[[list[str]], object], count: int) -> None:
        action([it.name for it in admin.segments(topic)])
        eventually(lambda: [it.phase for it in admin.segments(topic)] == ["open"] * count, what=f"{count} segments")

    def write(first: int) -> None:
        for number in range(first, first + ROWS // 3):
            producer.produce(topic, b"%d" % number, b"key-%d" % (number % 40))
        assert producer.flush(HANG_GUARD) == 0

    def read(rows: int) -> None:
        python, jars = spark
        folders = tmp_path / "checkpoint", tmp_path / "output"
        words = [python, PROGRAM, bootstrap(cluster), topic, jars, *folders, MAX_OFFSETS, rows]
        names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")
        environment = {name: value for name, value in os.environ.items() if name not in names}
        subprocess.run(list(map(str, words)), check=True, env=environment, timeout=5 * HANG_GUARD)

    write(0)
    change(lambda segments: admin.split(topic, segments[0], at=4), 2)
    write(ROWS // 3)
    read(2 * ROWS // 3)
    change(lambda segments: admin.merge(topic, segments), 1)
    write(2 * ROWS // 3)
    change(lambda segments: admin.roll(topic, segments[0]), 1)
    read(ROWS)

    found = pq.read_table(tmp_path / "output").to_pylist()
    assert sorted(int(it["value"]) for it in found) == list(range(ROWS))
    for partition in range(PARTITIONS):
        own = sorted((it["offset"], int(it["value"])) for it in found if it["partition"] == partition)
        assert [offset for offset, _ in own] == list(range(len(own)))
        assert [value for _, value in own] == sorted(value for _, value in own), "in the order in which they were sent"
