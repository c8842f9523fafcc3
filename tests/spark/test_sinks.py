"""What Spark writes is in the log once, or not at all: failed jobs, repeated writes and micro-batches, two drivers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import smq
from pyspark_smq.options import Connection
from pyspark_smq.sink.publishing import publish_rows
from pyspark_smq.sink.staging import INLINE_BYTES, stage_rows
from smq_storage.conversion import exact_cast
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark]

ROWS = 2000


def values_of(client: smq.Client, topic: str, count: int) -> list[int]:
    """All values in the log, which has that number of messages. A final message shows that there are not more."""
    with client.producer(topic) as producer:
        producer.send(b"-1")
        producer.flush()
    with client.consumer(topic) as consumer:
        found = [int(v) for b in read_back(consumer, count + 1) for v in b.table.column("value").to_pylist()]
    assert -1 in found
    return sorted(v for v in found if v >= 0)


def numbers(spark: SparkSession, start: int, stop: int, partitions: int = 4) -> DataFrame:
    return (
        spark.range(start, stop, numPartitions=partitions)
        .selectExpr("cast(id % 16 as string) as key_text", "cast(id as string) as value_text")
        .selectExpr("cast(key_text as binary) as key", "cast(value_text as binary) as value")
    )


@pytest.fixture
def write(cluster: LocalCluster, topic: str) -> Iterator[Callable[..., None]]:
    def written(frame: DataFrame, **options: Any) -> None:
        frame.write.format("smq").mode("append").option("leader", cluster.address).option("topic", topic).options(
            **options
        ).save()

    cluster.create(topic, segments={"min": 4, "max": 4})
    yield written


@pytest.mark.slow
def test_a_batch_write_publishes_every_row_once(
    spark: SparkSession, client: smq.Client, topic: str, write: Callable[..., None]
) -> None:
    write(numbers(spark, 0, ROWS))
    write(numbers(spark, ROWS, 2 * ROWS))
    assert values_of(client, topic, 2 * ROWS) == list(range(2 * ROWS))


def test_a_repeated_write_of_a_transaction_publishes_nothing_again(
    spark: SparkSession, client: smq.Client, topic: str, write: Callable[..., None]
) -> None:
    for _ in range(2):
        write(numbers(spark, 0, ROWS), txnAppId="nightly", txnVersion=7)
    write(numbers(spark, ROWS, 2 * ROWS), txnAppId="nightly", txnVersion=8)
    assert values_of(client, topic, 2 * ROWS) == list(range(2 * ROWS))


def test_a_failed_job_leaves_nothing(
    spark: SparkSession, client: smq.Client, topic: str, write: Callable[..., None]
) -> None:
    bad = numbers(spark, 0, ROWS).selectExpr(
        "key", f"if(value = cast('{ROWS - 1}' as binary), cast(raise_error('bad row') as binary), value) as value"
    )
    with pytest.raises(PySparkException, match="bad row"):
        write(bad)
    assert values_of(client, topic, 0) == []


def test_columns_that_the_topic_does_not_take_are_named_before_a_task_runs(
    spark: SparkSession, topic: str, write: Callable[..., None]
) -> None:
    with pytest.raises(PySparkException, match="amount"):
        write(spark.sql("select cast('1' as binary) as value, 2 as amount"))
    with pytest.raises(PySparkException, match=r'mode\("append"\)'):
        numbers(spark, 0, 1).write.format("smq").mode("overwrite").options(topic=topic, leader="127.0.0.1:1").save()


@pytest.mark.slow
def test_a_time_that_python_does_not_have_fails_the_write_and_is_read_from_a_log(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = 1_700_000_000_000_000_000  # in microseconds: what `time_ns()` would be
    columns = [{"name": "id", "type": "int64"}, {"name": "at", "type": "timestamp[us, UTC]"}]
    cluster.create(topic, schema=columns, key="id")
    options = {"leader": cluster.address, "topic": topic}
    rows = spark.sql(f"select id, timestamp_micros(if(id = 50, {late}, id)) as at from range(100)")
    with pytest.raises(PySparkException, match=r"column at, row .* Python has only the years 1 to 9999"):
        rows.write.format("smq").mode("append").options(**options).save()
    with monkeypatch.context() as patch, client.producer(topic) as producer:
        patch.setattr(exact_cast, "all_in_python", lambda _: True)  # as a client in another language
        at = pa.array([0, late], pa.timestamp("us", "UTC"))
        receipt = producer.write(pa.table({"id": [1, 2], "at": at})).result()
    assert receipt.offsets.tolist() == [0, 1], "the write has published nothing"
    read = spark.read.format("smq").options(**options).load().selectExpr("id", "unix_micros(at) as at")
    assert {(row.id, row["at"]) for row in read.collect()} == {(1, 0), (2, late)}


@pytest.mark.slow
def test_types_of_a_typed_topic(spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    columns = [{"name": "id", "type": "int64"}, {"name": "big", "type": "uint64"}, {"name": "small", "type": "uint8"}]
    cluster.create(topic, schema=columns, key="id")
    frame = spark.sql("select id, cast(id as decimal(20,0)) * 2 as b, cast(id as smallint) as small from range(100)")
    frame = frame.selectExpr("id", "cast(b as decimal(20,0)) as big", "small", "'x' as _segment", "7L as _offset")
    frame.write.format("smq").mode("append").options(leader=cluster.address, topic=topic).save()
    with client.consumer(topic) as consumer:
        found = pa.concat_tables(b.table.select(["id", "big", "small"]) for b in read_back(consumer, 100))
    assert found.sort_by("id").to_pylist() == [{"id": n, "big": 2 * n, "small": n} for n in range(100)]


def test_many_rows_are_uploaded_and_few_travel_in_the_message(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic)
    connection = Connection(topic, leader=cluster.address)
    few = pa.record_batch({"value": [b"1"]})
    many = pa.record_batch({"value": [str(n).zfill(1000).encode() for n in range(2, 2 + INLINE_BYTES // 1000)]})
    messages = [
        stage_rows([few], connection, 30.0),
        stage_rows([many], connection, 30.0),
        stage_rows([], connection, 30.0),
    ]
    assert [(bool(m.uploads), bool(m.inline)) for m in messages] == [(False, True), (True, False), (False, False)]
    messages = pickle.loads(pickle.dumps(messages))
    for _ in range(2):
        publish_rows(messages, connection, "app", 0, 30.0)
    assert values_of(client, topic, many.num_rows + 1) == list(range(1, 2 + many.num_rows))


def test_rows_that_were_staged_before_a_change_of_the_schema(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, schema=[{"name": "id", "type": "int64"}, {"name": "n", "type": "int32"}], key="id")
    numbers = pa.array(range(100), pa.int32())
    staged = client.stage(topic, table=pa.table({"id": numbers.cast(pa.int64()), "n": numbers}))
    client.admin().alter_topic(topic, add_columns={"note": "string"}, widen_columns={"n": "int64"})
    receipt = client.publish_atomically(topic, app="a", version=0, staged=staged)
    assert (receipt.rows, receipt.already_published) == (100, False)
    with client.consumer(topic) as consumer:
        found = pa.concat_tables(b.table.select(["id", "n", "note"]) for b in read_back(consumer, 100))
    assert found.schema.field("n").type == pa.int64()
    assert found.sort_by("id").to_pylist() == [{"id": n, "n": n, "note": None} for n in range(100)]


class Stream:
    """A query that copies text files of numbers to a topic; it keeps its checkpoint from one start to the next."""

    def __init__(self, spark: SparkSession, folder: Path, leader: str, topic: str) -> None:
        self.source, self.checkpoint = folder / "source", folder / "checkpoint"
        self.source.mkdir()
        self._spark = spark
        self._options = {"leader": leader, "topic": topic, "checkpointLocation": str(self.checkpoint)}

    def add(self, start: int, stop: int) -> None:
        (self.source / f"{start}.tmp").write_text("\n".join(map(str, range(start, stop))))
        (self.source / f"{start}.tmp").rename(self.source / f"{start}.txt")

    def run(self) -> StreamingQuery:
        """Until all files are in the topic."""
        lines = self._spark.readStream.text(str(self.source), pathGlobFilter="*.txt")
        frame = lines.selectExpr("cast(value as binary) as value")
        query = frame.writeStream.format("smq").options(**self._options).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def forget_last_commit(self) -> int:
        """As if the driver had ended after the queue's commit and before Spark's. Returns the micro-batch's id."""
        commits = sorted(int(p.name) for p in (self.checkpoint / "commits").iterdir() if p.name.isdigit())
        (self.checkpoint / "commits" / str(commits[-1])).unlink()
        (self.checkpoint / "commits" / f".{commits[-1]}.crc").unlink(missing_ok=True)
        return commits[-1]


@pytest.fixture
def stream(spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path) -> Stream:
    cluster.create(topic, segments={"min": 4, "max": 4})
    return Stream(spark, tmp_path, cluster.address, topic)


@pytest.mark.slow
def test_a_repeated_micro_batch_is_published_once(client: smq.Client, topic: str, stream: Stream) -> None:
    stream.add(0, 500)
    stream.run()
    stream.forget_last_commit()
    stream.add(500, 900)
    stream.run()
    assert values_of(client, topic, 900) == list(range(900))


def test_a_run_that_was_replaced_is_refused(
    cluster: LocalCluster, client: smq.Client, topic: str, stream: Stream
) -> None:
    """Another driver has run the query since. The first one comes back with rows that nobody else has."""
    runs = []
    for start in (0, 100):
        stream.add(start, start + 100)
        runs.append(stream.run())
    app, lost = f"spark-{runs[0].id}", pa.table({"value": [b"900"]})
    with pytest.raises(smq.ProducerFenced, match="had it before and was replaced"):
        client.publish_atomically(topic, app=app, version=2, table=lost, owner=str(runs[0].runId))
    stream.add(200, 300)
    stream.run()
    assert values_of(client, topic, 300) == list(range(300))
