"""``by_segment`` puts each row into a task of the segment that the producer would choose for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import pyspark_smq
import smq
from pyspark_smq.errors import InvalidOption
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]

ROWS, SEGMENTS = 600, 4


def keyed(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS, numPartitions=5).selectExpr(
        "cast(concat('k', id % 50) as binary) as key", "cast(cast(id as string) as binary) as value"
    )


@pytest.mark.slow
def test_each_task_has_the_rows_of_one_segment(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, segments={"min": SEGMENTS, "max": SEGMENTS})
    arranged = pyspark_smq.by_segment(keyed(spark), topic, leader=cluster.address, tasks_per_segment=2)
    assert arranged.columns == ["key", "value"] and arranged.rdd.getNumPartitions() == 2 * SEGMENTS
    task_of = {
        bytes(row["key"]): row["task"] for row in arranged.selectExpr("key", "spark_partition_id() as task").collect()
    }
    tasks = arranged.selectExpr("key", "spark_partition_id() as task").distinct().count()
    assert tasks == len(task_of) == 50, "a key is in one task"
    arranged.write.format("smq").mode("append").options(topic=topic, leader=cluster.address).save()
    with client.consumer(topic) as consumer:
        batches = read_back(consumer, ROWS)
    values = sorted(int(v) for b in batches for v in b.table.column("value").to_pylist())
    assert values == list(range(ROWS))
    segment_of = {key: b.segment for b in batches for key in b.table.column("key").to_pylist()}
    segments = {task: {segment_of[key] for key in segment_of if task_of[key] == task} for task in task_of.values()}
    assert all(len(found) == 1 for found in segments.values())
    assert len(set().union(*segments.values())) == SEGMENTS


def test_rows_without_a_key_go_to_all_tasks(spark: SparkSession, cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic, segments={"min": SEGMENTS, "max": SEGMENTS})
    frame = spark.range(ROWS).selectExpr("cast(null as binary) as key", "cast('x' as binary) as value")
    for rows in (frame, frame.drop("key")):
        arranged = pyspark_smq.by_segment(rows, topic, leader=cluster.address)
        tasks = arranged.selectExpr("spark_partition_id() as task").groupBy("task").count()
        counts = [row["count"] for row in tasks.collect()]
        assert len(counts) == SEGMENTS and max(counts) - min(counts) <= 2


def test_a_key_column_that_the_frame_lacks_is_refused(spark: SparkSession, cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic)
    with pytest.raises(InvalidOption, match="no column 'plane'"):
        pyspark_smq.by_segment(keyed(spark), topic, key="plane", leader=cluster.address)
