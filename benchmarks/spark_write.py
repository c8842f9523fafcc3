"""``python -m benchmarks.spark_write``: micro-batches, sink and compaction of Spark, on one machine with ``local[2]``.

    python -m benchmarks.spark_write                                  all, some minutes
    python -m benchmarks.spark_write --only sink --megabytes 100 --runs 1

batches     the median micro-batch of Spark's rate source, of a Python source and sink that do nothing, and of
            format("smq") into nothing and into a topic
sink        1 GB into a topic, and the same rows as Parquet into the same filer; the brokers' CPU, and that of streaming
compaction  10,000 chunks of 100 KB; reads before and after it
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from benchmarks import bare_source  # noqa: E402
from benchmarks.harness.cluster import BenchmarkCluster, ClusterSpec, wait_for  # noqa: E402
from benchmarks.harness.meter import Meter, wait_until_quiet  # noqa: E402
from benchmarks.loads import payload  # noqa: E402
from smq.reading import load_state, open_topic  # noqa: E402
from support.spark.session import start_spark  # noqa: E402
from tools import spark_jars  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamReader

SIZE = 1000
WARM_BATCHES, BATCHES = 15, 40
MESSAGES_PER_SECOND = 1000
CHUNK_ROWS, CHUNKS, CHUNK_SEGMENTS = 100, 10_000, 8
CHUNK_SECONDS = 0.05
# How long the CPU of idle brokers is measured.
IDLE_SECONDS = 20.0

# Milliseconds by the steps of a micro-batch, as Spark names them.
Durations = dict[str, float]
WHOLE = "triggerExecution"


def batches(spark: SparkSession, cluster: BenchmarkCluster, given: argparse.Namespace) -> None:
    source, target = cluster.topic(2), cluster.topic(2)
    rate = spark.readStream.format("rate").option("rowsPerSecond", MESSAGES_PER_SECOND).load()

    def topic() -> DataFrame:
        options = {"topic": source, "leader": cluster.leader, "columns": "key,value"}
        reader: DataStreamReader = spark.readStream.format("smq").options(**options)
        return reader.load()

    # Spark's Python processes cannot import this folder.
    cloudpickle.register_pickle_by_value(bare_source)
    spark.dataSource.register(bare_source.BareSource)

    def bare() -> DataFrame:
        return spark.readStream.format(bare_source.NAME).load()

    ways: dict[str, tuple[Callable[[], DataFrame], str]] = {
        "rate source": (lambda: rate, "noop"),
        "bare Python source": (bare, "noop"),
        "and bare Python sink": (bare, bare_source.NAME),
        "smq source": (topic, "noop"),
        "smq source and sink": (topic, "smq"),
    }
    found: dict[str, list[Durations]] = {name: [] for name in ways}
    with sending(cluster, source):
        for run in range(given.runs):
            for name, (frame, sink) in ways.items():
                checkpoint = cluster.folder / f"checkpoint-{run}-{sink}-{len(found[name])}-{name.replace(' ', '-')}"
                found[name].append(median_durations(frame(), sink, checkpoint, target, cluster.leader))
    base = median(it[WHOLE] for it in found["rate source"])
    for name, runs in found.items():
        mine = {step: median(it.get(step, 0.0) for it in runs) for step in runs[0]}
        steps = ", ".join(f"{step} {ms:.0f}" for step, ms in sorted(mine.items()) if step != WHOLE and ms >= 1)
        print(f"{name:22} p50 {mine[WHOLE]:5.0f} ms, {mine[WHOLE] / base:.2f} of the rate source ({steps})")


def median_durations(frame: DataFrame, sink: str, checkpoint: Path, topic: str, leader: str) -> Durations:
    """The median of warm micro-batches that have rows, for the whole and for each of Spark's steps."""
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint))
    if sink == "smq":
        writer = writer.options(topic=topic, leader=leader)
    query = writer.start()
    taken: dict[int, Durations] = {}
    try:
        while len(taken) < WARM_BATCHES + BATCHES:
            time.sleep(0.2)
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    taken[progress["batchId"]] = dict(progress["durationMs"])
            failure = query.exception()
            if failure is not None:
                raise failure
    finally:
        query.stop()
    warm = [taken[batch] for batch in sorted(taken)][WARM_BATCHES:]
    return {step: median(it.get(step, 0.0) for it in warm) for step in warm[0]}


@contextmanager
def sending(cluster: BenchmarkCluster, topic: str) -> Iterator[None]:
    """Messages arrive evenly inside this block."""
    stop = threading.Event()
    values = payload.events(100)

    def send() -> None:
        with cluster.client.producer(topic) as producer:
            at = time.monotonic()
            while not stop.wait(max(0.0, at - time.monotonic())):
                at += 0.05
                for n in range(MESSAGES_PER_SECOND // 20):
                    producer.send(values[n], key=b"%d" % n)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        sender.join()


def sink(spark: SparkSession, cluster: BenchmarkCluster, given: argparse.Namespace) -> None:
    from pyspark_smq.table.s3a import configure

    rows = given.megabytes * 1_000_000 // SIZE
    folder = cluster.folder / "rows"
    folder.mkdir()
    parts = 8
    for part in range(parts):
        table = with_keys(payload.table(SIZE, rows // parts), part * (rows // parts))
        pq.write_table(table, folder / f"{part}.parquet", compression="zstd")
    frame = spark.read.parquet(str(folder))
    topics = [cluster.topic(2) for _ in range(given.runs + 1)]
    root = configure(spark, open_topic(topics[0], leader=cluster.leader).location.store)
    taken: dict[str, list[float]] = {"smq": [], "parquet": []}
    brokers = []
    for run, topic in enumerate(topics):  # the first run does not count
        wait_until_quiet(20)
        began = time.monotonic()
        frame.write.parquet(f"{root}/_benchmark/{run}", compression="zstd")
        parquet = time.monotonic() - began
        with Meter(cluster.groups) as meter:
            frame.write.format("smq").mode("append").options(topic=topic, leader=cluster.leader).save()
        if run:
            taken["parquet"].append(parquet)
            taken["smq"].append(meter.wall)
            brokers.append(meter.spent("broker"))
    streamed = cluster.topic(2)
    with Meter(cluster.groups) as meter:
        with cluster.client.producer(streamed, timeout=600) as producer:
            for part in range(parts):
                producer.write(pq.read_table(folder / f"{part}.parquet"))
            producer.flush(600)
        cluster.wait_flushed(streamed, rows // parts * parts)
    wait_until_quiet(20)
    with Meter(cluster.groups) as idle:
        time.sleep(IDLE_SECONDS)
    megabytes = rows * SIZE / 1e6
    smq, parquet = median(taken["smq"]), median(taken["parquet"])
    print(f"sink {megabytes / smq:.0f} MB/s (at least 100), Parquet {megabytes / parquet:.0f} MB/s")
    print(f"sink / Parquet {parquet / smq:.2f} (at least 0.70)")
    streaming, idle_cores = meter.spent("broker"), idle.spent("broker") / IDLE_SECONDS
    print(f"brokers' CPU {median(brokers):.2f} s, streamed {streaming:.2f} s: {median(brokers) / streaming:.1%}")
    added = median(brokers) - idle_cores * smq, streaming - idle_cores * meter.wall
    print(f"without the {idle_cores:.3f} cores that they take when idle: {added[0] / added[1]:.1%} (at most 2 %)")


def compaction(spark: SparkSession, cluster: BenchmarkCluster, given: argparse.Namespace) -> None:
    from pyspark.sql import functions as F

    import pyspark_smq
    from pyspark_smq.jobs.compact import compact
    from pyspark_smq.options import Connection

    chunks = given.chunks
    topic = cluster.topic(CHUNK_SEGMENTS, flush_bytes="90Ki", flush_interval="1h")
    with cluster.client.producer(topic, timeout=600) as producer:
        step = CHUNK_ROWS * CHUNK_SEGMENTS
        for first in range(0, chunks * CHUNK_ROWS, step):
            producer.write(with_keys(payload.table(SIZE, step), first))
            producer.flush(600)
            time.sleep(CHUNK_SECONDS)  # so that each write becomes a chunk of each segment
    admin = cluster.client.admin()
    filled = [segment.name for segment in admin.segments(topic)]
    for name in filled:
        admin.roll(topic, name)
    location = open_topic(topic, leader=cluster.leader).location

    def entries() -> dict[str, bool]:
        return {it.name: bool(it.file_list) for it in load_state(location).index.entries}

    wait_for("file lists", lambda: all(entries().get(name) for name in filled), 300)

    def read() -> float:
        began = time.monotonic()
        frame = pyspark_smq.read(spark, topic, leader=cluster.leader)
        (found,) = frame.agg(F.count("*"), F.sum(F.length("value"))).collect()
        assert found[0] == chunks * CHUNK_ROWS, f"{found[0]} rows"
        pyspark_smq.release(frame)
        return time.monotonic() - began

    if given.runs > 1:
        read()
    before = median(read() for _ in range(given.runs))
    requests, began = cluster.store_requests(), time.monotonic()
    done = list(compact(spark, Connection(topic, leader=cluster.leader), 32 << 20))
    seconds = time.monotonic() - began
    requests = cluster.store_requests() - requests
    megabytes = chunks * CHUNK_ROWS * SIZE / 1e6
    files = sum(it.merged_files for it in done)
    print(f"compaction of {files} files: {seconds:.1f} s, {megabytes / seconds:.0f} MB/s (at least 40)")
    print(f"{requests} requests to the filer, {requests / files:.2f} for each file (at most 2)")
    read()
    after = median(read() for _ in range(given.runs))
    print(f"reads before {before:.2f} s, after {after:.2f} s: {before / after:.1f} times as fast (at least 5)")


def with_keys(table: pa.Table, first: int) -> pa.Table:
    return table.append_column("key", pa.array([b"%d" % (n % 10_000) for n in range(first, first + table.num_rows)]))


CASES = {"batches": batches, "sink": sink, "compaction": compaction}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=CASES, action="append", help="one case; may be repeated")
    parser.add_argument("--megabytes", type=int, default=1000, help="what the sink writes (%(default)s)")
    parser.add_argument("--chunks", type=int, default=CHUNKS, help="what is compacted (%(default)s)")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    spark_jars.fetch()
    with BenchmarkCluster(ROOT / "build" / "bench" / "spark", ClusterSpec(memory="2Gi")) as cluster:
        spark = start_spark(cluster.folder, spark_driver_memory="4g")
        for name in given.only or CASES:
            CASES[name](spark, cluster, given)
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
