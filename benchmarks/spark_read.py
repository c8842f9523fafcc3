"""``python -m benchmarks.spark_read``: how fast Spark reads old data, against its own Parquet reader on the same files.

    python -m benchmarks.spark_read                          1 GB, 3 runs of each way in turn: some minutes
    python -m benchmarks.spark_read --megabytes 100 --runs 1

Every way computes count(*) and sum(length(value)), from the call that plans the read to the answer. Each run reads the
ways one after the other, and the medians are compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from benchmarks.harness.cluster import BenchmarkCluster, ClusterSpec, wait_for  # noqa: E402
from benchmarks.harness.meter import wait_until_quiet  # noqa: E402
from benchmarks.loads import payload  # noqa: E402
from smq.reading import load_state, open_topic  # noqa: E402
from support.spark.session import start_spark  # noqa: E402
from tools import spark_jars  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZE = 1000
SEGMENTS = 2
BATCH_ROWS = 20_000
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PARQUET, TABLE, SOURCE, FILTERED = "spark.read.parquet", "pyspark_smq.read", 'format("smq")', "1 % by time"


@dataclass(frozen=True)
class Way:
    """``frame`` plans the read; ``rows`` is what it must find."""

    name: str
    frame: Callable[[], DataFrame]
    rows: int


def fill(cluster: BenchmarkCluster, rows: int) -> str:
    """A topic of ``rows`` events whose times go evenly through one day, in sealed segments with file lists."""
    topic = cluster.topic(SEGMENTS)
    step = DAY / rows
    with cluster.client.producer(topic, timeout=600) as producer:
        for first in range(0, rows, BATCH_ROWS):
            values = payload.table(SIZE, min(BATCH_ROWS, rows - first))
            times = [BEGAN + step * n for n in range(first, first + values.num_rows)]
            keys = pa.array([b"%d" % (n % 10_000) for n in range(first, first + values.num_rows)])
            table = values.append_column("timestamp", pa.array(times, pa.timestamp("us", tz="UTC")))
            producer.write(table.append_column("key", keys))
        producer.flush(600)
    admin = cluster.client.admin()
    filled = [segment.name for segment in admin.segments(topic)]
    for name in filled:
        admin.roll(topic, name)

    def sealed() -> bool:
        phases = {segment.name: segment.phase for segment in admin.segments(topic, all=True)}
        return all(phases.get(name) == "sealed" for name in filled)

    wait_for("sealed segments", sealed, 120)
    opened = open_topic(topic, leader=cluster.leader)
    # The leader names them a moment later; without them the chains are walked.
    wait_for("file lists", lambda: all(it.file_list for it in load_state(opened.location).index.entries), 120)
    return topic


def ways(spark: SparkSession, cluster: BenchmarkCluster, topic: str, rows: int) -> list[Way]:
    """What is compared. All read the same files."""
    import pyspark_smq

    whole = pyspark_smq.read(spark, topic, leader=cluster.leader)
    files, schema = whole.inputFiles(), whole.drop("_segment", "_offset").schema
    pyspark_smq.release(whole)
    middle = BEGAN + DAY / 2
    return [
        Way(PARQUET, lambda: spark.read.schema(schema).parquet(*files), rows),
        Way(TABLE, lambda: pyspark_smq.read(spark, topic, leader=cluster.leader), rows),
        Way(
            SOURCE,
            lambda: spark.read.format("smq").options(topic=topic, leader=cluster.leader, columns="value").load(),
            rows,
        ),
        Way(
            FILTERED,
            lambda: pyspark_smq.read(spark, topic, leader=cluster.leader, timestamp=(middle, middle + DAY / 100)),
            rows // 100,
        ),
    ]


def measure(way: Way) -> float:
    """Seconds of planning and reading. Raises AssertionError if it finds other rows."""
    from pyspark.sql import functions as F

    began = time.monotonic()
    (found,) = way.frame().agg(F.count("*"), F.sum(F.length("value"))).collect()
    seconds = time.monotonic() - began
    assert abs(found[0] - way.rows) <= 1 and found[1] == found[0] * SIZE, f"{way.name} found {found}, not {way.rows}"
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--without-source", action="store_true", help='leave out format("smq")')
    given = parser.parse_args()
    spark_jars.fetch()
    rows = given.megabytes * 1_000_000 // SIZE
    with BenchmarkCluster(ROOT / "build" / "bench" / "spark", ClusterSpec(memory="2Gi")) as cluster:
        spark = start_spark(cluster.folder, spark_driver_memory="4g")
        topic = fill(cluster, rows)
        compared = [
            way for way in ways(spark, cluster, topic, rows) if not (given.without_source and way.name == SOURCE)
        ]
        for way in compared:  # classes are loaded and code is compiled in the first run, which does not count
            measure(way)
        seconds: dict[str, list[float]] = {way.name: [] for way in compared}
        wait_until_quiet(30)
        for _ in range(given.runs):
            for way in compared:
                seconds[way.name].append(measure(way))
        spark.stop()
    show({name: median(taken) for name, taken in seconds.items()}, rows)
    return 0


def show(seconds: dict[str, float], rows: int) -> None:
    """Prints the medians and their ratios."""
    parquet, table = seconds[PARQUET], seconds[TABLE]
    for name, taken in seconds.items():
        print(f"{name:20} {taken:7.2f} s {rows * SIZE / taken / 1e6:8.0f} MB/s")
    print(f"{TABLE} / {PARQUET}: {parquet / table:.2f} (at least 0.95)")
    if SOURCE in seconds:
        print(f"{SOURCE} / {PARQUET}: {parquet / seconds[SOURCE]:.2f} (at least 0.35)")
    print(f"{FILTERED}: {table / seconds[FILTERED]:.1f} times as fast as all (at least 10)")


if __name__ == "__main__":
    sys.exit(main())
