"""The jobs backfill and verify: every row once after a run that was cut off, and damage that is found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import smq
from pyspark_smq.errors import InvalidOption
from pyspark_smq.jobs.backfill import backfill
from pyspark_smq.jobs.verify import Verified, checksum, count_disorder, count_segments, verify
from pyspark_smq.options import Connection
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster
from support.spark.topics import roll

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]

DAYS, ROWS_PER_DAY = 4, 60
BEGAN = datetime(2013, 1, 1, tzinfo=UTC)
COLUMNS = [
    {"name": "plane", "type": "string", "nullable": True},
    {"name": "number", "type": "int64"},
    {"name": "at", "type": "timestamp[us, UTC]"},
]


def days(spark: SparkSession) -> DataFrame:
    """The newest rows first."""
    last = int(BEGAN.timestamp()) + DAYS * 86400 - 1
    return spark.range(DAYS * ROWS_PER_DAY, numPartitions=3).selectExpr(
        "concat('N', id % 7) as plane",
        f"{DAYS * ROWS_PER_DAY} - id as number",
        f"timestamp_seconds({last} - id * {86400 // ROWS_PER_DAY}) as at",
    )


def in_log(client: smq.Client, topic: str, count: int) -> pa.Table:
    with client.consumer(topic) as consumer:
        return pa.concat_tables(b.table.select(["plane", "number"]) for b in read_back(consumer, count))


@pytest.mark.slow
def test_a_backfill_goes_on_where_it_was_cut_off(
    s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    spark = s3a
    cluster.create(topic, schema=COLUMNS, key="plane", segments={"min": 2, "max": 4})
    at, day = Connection(topic, leader=cluster.address), timedelta(days=1)
    first = backfill(days(spark), at, "at", "old", day)
    assert [next(first).start for _ in range(2)] == [BEGAN, BEGAN + day]
    first.close()
    admin = client.admin()
    admin.split(topic, admin.segments(topic)[0].name)
    rest = list(backfill(days(spark), at, "at", "old", day))
    assert [(it.start, it.rows) for it in rest] == [(BEGAN + n * day, ROWS_PER_DAY) for n in (2, 3)]
    assert list(backfill(days(spark), at, "at", "old", day)) == []
    found = in_log(client, topic, DAYS * ROWS_PER_DAY)
    assert sorted(found["number"].to_pylist()) == list(range(1, DAYS * ROWS_PER_DAY + 1))
    verified = verify(spark, at, "number")
    assert verified.is_whole and verified.disorder == 0
    assert sum(it.rows for it in verified.segments) == DAYS * ROWS_PER_DAY
    frame = spark.read.format("smq").options(**at.spark_options()).load()
    assert checksum(frame.select("plane", "number", "at")) == checksum(days(spark)), "the same rows as in the files"


def test_rows_without_a_place_in_the_order_are_refused(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, schema=COLUMNS, key="plane")
    at = Connection(topic, leader=cluster.address)
    for time, message in (("null", "rows without a value in 'at'"), ("timestamp_seconds(-5)", "before 1970")):
        frame = days(spark).selectExpr("plane", "number", f"if(number = 3, {time}, at) as at")
        with pytest.raises(InvalidOption, match=message):
            list(backfill(frame, at, "at", "bad", timedelta(days=1)))
    assert client.last_version(topic, app="backfill-bad-86400s") is None


@pytest.mark.slow
def test_messages_out_of_order_are_found(
    s3a: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, schema=COLUMNS, key="plane", segments={"min": 1, "max": 4})
    with client.producer(topic) as producer:
        for numbers in ([1, 2, 3], [5, 4, 6]):
            times = pa.array([BEGAN] * 3, pa.timestamp("us", tz="UTC"))
            producer.write(pa.table({"plane": ["N1"] * 3, "number": pa.array(numbers, pa.int64()), "at": times}))
            producer.flush()
            roll(client, topic)
    found = verify(s3a, Connection(topic, leader=cluster.address), "number")
    assert found.disorder == 1 and not found.is_whole and not any(it.problem for it in found.segments)


@pytest.mark.slow
def test_missing_and_doubled_offsets_are_found(spark: SparkSession) -> None:
    rows = [("a", n, "k", n) for n in (0, 1, 3, 4)] + [("b", n, "k", 10 + n) for n in (0, 1, 1, 2)]
    frame = spark.createDataFrame(rows, "_segment string, _offset long, key string, number long")
    missing, doubled = count_segments(frame)
    assert missing.problem == "1 offsets are missing" and "1 rows have an offset" in doubled.problem
    assert not Verified((missing, doubled), 0, None).is_whole
    assert count_disorder(frame, "key", "number", {"a": 0, "b": 1}) == 1
    assert count_disorder(frame, "key", "number", {"b": 0, "a": 1}) == 2
    assert checksum(frame.where("number < 4")) != checksum(frame.where("number < 3"))
    assert checksum(frame) == checksum(frame.orderBy("number", ascending=False))
