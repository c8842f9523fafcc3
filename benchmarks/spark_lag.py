"""``python -m benchmarks.spark_lag``: how far a streaming query is behind its topic, under a steady load.

    python -m benchmarks.spark_lag                                100,000 messages/s of 100 bytes, 3 minutes
    python -m benchmarks.spark_lag --rate 10000 --seconds 20

A producer writes at a fixed rate, and a query reads everything into nothing. The lag is what was acked and is in no
micro-batch that has ended. The picture has it over time.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from benchmarks.elastic.svg import Svg  # noqa: E402
from benchmarks.harness.cluster import BenchmarkCluster, ClusterSpec, wait_for  # noqa: E402
from benchmarks.harness.meter import wait_until_quiet  # noqa: E402
from benchmarks.loads import payload  # noqa: E402
from support.spark.session import start_spark  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

SIZE = 100
TABLES_PER_SECOND = 10
SAMPLE_SECONDS = 0.2
# Between the first micro-batch and the first sample: the first micro-batches compile code.
WARM_SECONDS = 15.0
# Within which the first micro-batch must be done.
START_SECONDS = 120.0


@dataclass(frozen=True)
class Sample:
    """``second`` is counted from the first one, ``lag`` in messages."""

    second: float
    lag: int


class Load:
    """Writes tables at a fixed rate in a thread, from its beginning to its end, and counts what was acked."""

    def __init__(self, cluster: BenchmarkCluster, topic: str, rate: int) -> None:
        self._cluster, self._topic = cluster, topic
        self._table = payload.table(SIZE, rate // TABLES_PER_SECOND)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acked = 0
        self.late = 0.0
        """The most seconds that the load was behind its rate."""

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with self._cluster.client.producer(self._topic) as producer:
            at = time.monotonic()
            while not self._stop.wait(max(0.0, at - time.monotonic())):
                self.late = max(self.late, time.monotonic() - at)
                at += 1 / TABLES_PER_SECOND
                producer.write(self._table)
                producer.flush(60)
                self.acked += self._table.num_rows


def follow(query: StreamingQuery, load: Load, seconds: float) -> tuple[list[Sample], list[float]]:
    """Samples of the lag during ``seconds``, and the time that each micro-batch took."""
    rows: dict[int, int] = {}
    took: dict[int, float] = {}
    samples: list[Sample] = []
    wait_for("the first micro-batch", lambda: bool(query.recentProgress or query.exception()), START_SECONDS)
    began = time.monotonic() + WARM_SECONDS
    while (second := time.monotonic() - began) < seconds:
        time.sleep(SAMPLE_SECONDS)
        acked = load.acked  # before the progress, so that the lag is not below what it is
        for progress in query.recentProgress:
            rows[progress["batchId"]] = progress["numInputRows"]
            took[progress["batchId"]] = progress["durationMs"].get("triggerExecution", 0) / 1000
        failure = query.exception()
        if failure is not None:
            raise failure
        if second >= 0:
            samples.append(Sample(second, max(0, acked - sum(rows.values()))))
    return samples, list(took.values())


def draw(samples: Sequence[Sample], rate: int) -> str:
    """The lag over time, as an SVG."""
    svg = Svg(760, 250)
    x, y, width, height = 60, 50, 680, 160
    longest, most = samples[-1].second, max(sample.lag for sample in samples) / rate * 1.15
    svg.write(x, 22, f"Lag of a Spark query behind {rate:,} messages/s of {SIZE} bytes", "title")
    svg.write(x, 39, "seconds of messages that were acked and not yet read, by seconds", "small")
    for part in range(5):
        at = y + height - height * part / 4
        svg.grid(x, at, x + width, at)
        svg.write(x - 6, at + 4, f"{most * part / 4:.1f}", "small end")
        svg.write(x + width * part / 4, y + height + 16, f"{longest * part / 4:.0f}", "small middle")
    points = [(x + s.second / longest * width, y + height - s.lag / rate / most * height) for s in samples]
    svg.line(points, "#1f5fa8")
    svg.frame(x, y, width, height)
    return svg.text()


def show(samples: Sequence[Sample], took: Sequence[float], load: Load, rate: int) -> None:
    """Prints the lag by third of the time, so that one that grows is seen."""
    third = samples[-1].second / 3
    for part in range(3):
        lags = sorted(s.lag / rate for s in samples if part * third <= s.second <= (part + 1) * third)
        p99 = lags[int(0.99 * (len(lags) - 1))]
        print(f"third {part + 1}: lag p50 {median(lags):.2f} s, p99 {p99:.2f} s, longest {lags[-1]:.2f} s")
    print(f"micro-batches: {len(took)}, median {median(took):.2f} s; the load was at most {load.late:.2f} s late")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=100_000, help="messages a second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--picture", type=Path, help="an SVG file that is written")
    given = parser.parse_args()
    with BenchmarkCluster(ROOT / "build" / "bench" / "spark", ClusterSpec(memory="2Gi")) as cluster:
        topic = cluster.topic(2)
        spark = start_spark(cluster.folder, spark_driver_memory="2g")
        options = {"topic": topic, "leader": cluster.leader, "columns": "value", "startingPosition": "earliest"}
        frame = spark.readStream.format("smq").options(**options).load()
        wait_until_quiet(20)
        with Load(cluster, topic, given.rate) as load:
            query = (
                frame.writeStream.format("noop")
                .option("checkpointLocation", str(cluster.folder / "checkpoint"))
                .start()
            )
            samples, took = follow(query, load, given.seconds)
            query.stop()
        spark.stop()
    show(samples, took, load, given.rate)
    if given.picture:
        given.picture.write_text(draw(samples, given.rate))
    return 0


if __name__ == "__main__":
    sys.exit(main())
