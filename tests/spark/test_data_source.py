"""Spark finds the data source, and says at planning time what is wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]


def load(spark: SparkSession, cluster: LocalCluster, topic: str, **options: str) -> DataFrame:
    return spark.read.format("smq").options(**({"topic": topic, "leader": cluster.address} | options)).load()


def test_columns_of_a_raw_topic(spark: SparkSession, cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic)
    assert load(spark, cluster, topic).schema.simpleString() == (
        "struct<partition:int,timestamp:timestamp,appended:timestamp,key:binary,value:binary,"
        "headers:array<struct<key:string,value:binary>>,_segment:string,_offset:bigint>"
    )


def test_columns_of_a_typed_topic_that_are_chosen(spark: SparkSession, cluster: LocalCluster, topic: str) -> None:
    columns = [{"name": "carrier", "type": "string"}, {"name": "delay", "type": "uint32", "nullable": True}]
    cluster.create(topic, schema=columns, key="carrier")
    read = load(spark, cluster, topic, columns="_offset, delay, carrier")
    assert read.schema.simpleString() == "struct<_offset:bigint,delay:bigint,carrier:string>"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": "vlaue"}, "did you mean 'value'"),
        ({"startPosition": "latest"}, "did you mean 'startingPosition'"),
        ({"leader": "localhost"}, "must be host:port"),
        ({"topic": "no-such-topic"}, "UnknownTopic"),
    ],
)
def test_mistakes_are_errors_of_the_plan(
    spark: SparkSession, cluster: LocalCluster, topic: str, options: dict[str, str], words: str
) -> None:
    from pyspark.errors import AnalysisException

    cluster.create(topic)
    with pytest.raises(AnalysisException, match=words):
        spark.read.format("smq").options(**({"topic": topic, "leader": cluster.address} | options)).load()


def test_overwrite_is_refused_with_a_reason(spark: SparkSession, cluster: LocalCluster, topic: str) -> None:
    cluster.create(topic)
    frame = spark.range(3).selectExpr("cast(cast(id as string) as binary) as value")
    with pytest.raises(Exception, match="a topic is a log"):
        frame.write.format("smq").options(topic=topic, leader=cluster.address).mode("overwrite").save()


def test_the_package_is_light_where_nobody_uses_it() -> None:
    """Spark imports it to find data sources, also for programs that use none."""
    program = "import pyspark_smq, sys; print([m for m in ('pyarrow', 'grpc', 'obstore', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
