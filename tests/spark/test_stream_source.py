"""Streaming reads: every message once and in the order of its key, whatever happens to segments and to the driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import smq
from smq_core.model.entities import RemovedSegment
from smq_storage.catalog import sealed_index
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark]

KEYS = 8


class Messages:
    """Messages with numbers that rise within each key."""

    def __init__(self, client: smq.Client, topic: str) -> None:
        self.sent = 0
        self._client, self._topic = client, topic

    def send(self, count: int) -> None:
        with self._client.producer(self._topic) as producer:
            for number in range(self.sent, self.sent + count):
                producer.send(str(number).encode(), key=str(number % KEYS).encode())
            producer.flush(HANG_GUARD)
        self.sent += count

    def split(self) -> None:
        before = self._open()
        self._client.admin().split(self._topic, before[0])
        eventually(lambda: len(self._open()) == len(before) + 1, what="the split")

    def merge(self) -> None:
        before = sorted(self._client.admin().segments(self._topic), key=lambda s: s.start)
        self._client.admin().merge(self._topic, [before[0].name, before[1].name])
        eventually(lambda: len(self._open()) == len(before) - 1, what="the merge")

    def _open(self) -> list[str]:
        return [s.name for s in self._client.admin().segments(self._topic) if s.phase == "open"]


class Collector:
    """Collects the numbers of each micro-batch, and checks that those of a key never fall."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = frame.selectExpr("cast(cast(value as string) as int) as n", "spark_partition_id() as task").collect()
        self.batches.append([row.n for row in rows])

    @property
    def numbers(self) -> list[int]:
        return [n for batch in self.batches for n in batch]

    def check(self, count: int) -> None:
        assert sorted(self.numbers) == list(range(count))
        last: dict[int, int] = {}
        for number in self.numbers:
            assert last.get(number % KEYS, -1) < number, "the order within a key"
            last[number % KEYS] = number


@pytest.fixture
def messages(cluster: LocalCluster, client: smq.Client, topic: str) -> Iterator[Messages]:
    cluster.create(topic, segments={"min": 1, "max": 8})
    yield Messages(client, topic)


def stream(spark: SparkSession, cluster: LocalCluster, topic: str, **options: Any) -> DataFrame:
    given = {"leader": cluster.address, "topic": topic, "startingPosition": "earliest"} | options
    return spark.readStream.format("smq").options(**given).load()


def run(frame: DataFrame, found: Collector, checkpoint: Path) -> StreamingQuery:
    """Everything that there is now."""
    writer = frame.writeStream.foreachBatch(found).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


@pytest.mark.slow
def test_the_order_of_keys_holds_through_splits_and_merges(
    spark: SparkSession, cluster: LocalCluster, topic: str, messages: Messages, tmp_path: Path
) -> None:
    found, frame = Collector(), stream(spark, cluster, topic)
    for change in (messages.split, messages.split, messages.merge):
        messages.send(300)
        run(frame, found, tmp_path)
        messages.send(100)
        change()
    messages.send(100)
    run(frame, found, tmp_path)
    found.check(messages.sent)
    assert len(found.batches) == 4, "a run takes one micro-batch, also if segments changed meanwhile"


@pytest.mark.slow
def test_a_limit_divides_what_there_is(
    spark: SparkSession, cluster: LocalCluster, topic: str, messages: Messages, tmp_path: Path
) -> None:
    messages.send(200)
    messages.split()
    messages.send(200)
    found = Collector()
    run(stream(spark, cluster, topic, maxRowsPerTrigger=100), found, tmp_path)
    found.check(400)
    assert 4 <= len(found.batches) <= 6
    assert max(map(len, found.batches)) <= 102  # at least one row of each segment


@pytest.mark.slow
def test_a_query_shows_how_far_it_is_and_how_far_it_could_be(
    spark: SparkSession, cluster: LocalCluster, topic: str, messages: Messages, tmp_path: Path
) -> None:
    messages.send(50)
    query = run(stream(spark, cluster, topic), Collector(), tmp_path)
    (source,) = next(p for p in query.recentProgress if p["numInputRows"])["sources"]
    end = source["endOffset"] if isinstance(source["endOffset"], dict) else json.loads(source["endOffset"])
    assert sum(end["positions"].values()) == 50
    assert end["topic"] == f"default/{topic}"


DRIVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

leader, topic, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.readStream.format("smq").options(
    leader=leader, topic=topic, startingPosition="earliest", maxRowsPerTrigger="100"
).load()

def write(frame, batch):  # a repeated micro-batch replaces its file
    rows = frame.selectExpr("cast(value as string) as n").collect()
    Path(folder, f"{batch}.tmp").write_text(" ".join(row.n for row in rows))
    Path(folder, f"{batch}.tmp").rename(Path(folder, f"{batch}.rows"))

query = frame.writeStream.foreachBatch(write).option("checkpointLocation", folder + "/checkpoint").start()
query.awaitTermination()
"""


@pytest.mark.slow
def test_a_killed_driver_continues_where_its_checkpoint_says(
    cluster: LocalCluster, topic: str, messages: Messages, tmp_path: Path
) -> None:
    def numbers() -> list[int]:
        batches = sorted(tmp_path.glob("*.rows"), key=lambda path: int(path.stem))
        return [int(n) for path in batches for n in path.read_text().split()]

    messages.send(400)
    messages.split()
    messages.send(400)
    for wanted in (100, 800):
        with subprocess.Popen(
            [sys.executable, "-c", DRIVER, cluster.address, topic, str(tmp_path)],
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            stderr=(tmp_path / "driver.log").open("a"),
            process_group=0,
        ) as driver:
            try:
                eventually(
                    lambda wanted=wanted, driver=driver: len(numbers()) >= wanted or driver.poll() is not None,
                    what=f"{wanted} rows are read",
                )
                assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]
            finally:
                os.killpg(driver.pid, signal.SIGKILL)
    assert sorted(numbers()) == list(range(800))


@pytest.mark.slow
def test_a_segment_that_retention_removed_first_ends_the_query_with_the_reason(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str, messages: Messages, tmp_path: Path
) -> None:
    messages.send(100)
    found, frame = Collector(), stream(spark, cluster, topic)
    run(frame, found, tmp_path)
    messages.send(100)
    messages.split()
    messages.send(100)
    store, name = cluster.store.open(), f"default/{topic}"
    uid = json.loads(bytes(store.get(f"{name}/_current.json").data))["uid"]
    sealed = sealed_index.read(store, name, uid)
    eventually(lambda: sealed_index.read(store, name, uid), what="the index has the sealed segment")
    (sealed,) = sealed_index.read(store, name, uid)
    sealed_index.remove(
        store, name, uid, [RemovedSegment(name=sealed.name, number=sealed.number, end=sealed.end, removed_at=0)]
    )
    with pytest.raises(StreamingQueryException, match=r"retention has removed .* from offset 100 on"):
        run(frame, found, tmp_path)
    run(stream(spark, cluster, topic, failOnDataLoss="false"), found, tmp_path)
    assert sorted(found.numbers) == [*range(100), *range(200, 300)]


@pytest.mark.slow
def test_a_checkpoint_of_another_topic_is_refused(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str, messages: Messages, tmp_path: Path
) -> None:
    messages.send(10)
    run(stream(spark, cluster, topic), Collector(), tmp_path)
    cluster.create(f"{topic}-other")
    with pytest.raises(StreamingQueryException, match=f"the checkpoint is of the topic default/{topic}"):
        run(stream(spark, cluster, f"{topic}-other"), Collector(), tmp_path)


@pytest.mark.slow
def test_positions_that_the_topic_does_not_have_are_refused(
    spark: SparkSession, cluster: LocalCluster, topic: str, messages: Messages, tmp_path: Path
) -> None:
    messages.send(10)
    (segment,) = messages._open()
    for positions, message in (({segment: 11}, "is past its end, 10"), ({"t-0-8-99": 0}, "no such segment")):
        with pytest.raises(StreamingQueryException, match=message):
            run(stream(spark, cluster, topic, startingPosition=json.dumps(positions)), Collector(), tmp_path)
    found = Collector()
    run(stream(spark, cluster, topic, startingPosition=json.dumps({segment: 4})), found, tmp_path / "new")
    assert sorted(found.numbers) == list(range(4, 10))
