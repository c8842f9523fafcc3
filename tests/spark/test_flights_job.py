"""The hourly delays beside the truth, each hour once in the result topic and in the table; late flights are counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
import yaml

import smq
from examples.demo_spark import run_patiently
from pyspark_smq.jobs.flights_hourly import Places, run
from pyspark_smq.options import Connection
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

EXAMPLES = Path(__file__).parents[2] / "examples" / "topics"
BEGAN = datetime(2013, 1, 1, tzinfo=UTC)
CARRIERS = ["AA", "UA", "WN"]
HOURS = 72
WATERMARK = timedelta(hours=12)


def spec_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["spec"]
    return found | {"partitions": 64, "segments": {"min": 2, "max": 4}}


def flights(first_hour: int, hours: int) -> pa.Table:
    """Five flights in each hour, in the order of time; each seventh is cancelled."""
    numbers = range(first_hour * 5, (first_hour + hours) * 5)
    times = [BEGAN + timedelta(hours=n // 5) for n in numbers]
    return pa.table(
        {
            "carrier": [CARRIERS[n % 3] for n in numbers],
            "time_hour": pa.array(times, pa.timestamp("us", tz="UTC")),
            "dep_delay": pa.array([None if n % 7 == 0 else float(n % 11) for n in numbers], pa.float64()),
            "tailnum": [f"N{n % 40}" for n in numbers],
            "flight": pa.array(numbers, pa.int32()),
        }
    )


def publish(client: smq.Client, topic: str, table: pa.Table) -> None:
    """The other columns do not matter here."""
    for name in ("year", "month", "day", "sched_dep_time", "sched_arr_time", "distance"):
        table = table.append_column(name, pa.array([1] * table.num_rows, pa.int32()))
    for name in ("dep_time", "arr_time"):
        table = table.append_column(name, pa.nulls(table.num_rows, pa.int32()))
    for name in ("arr_delay", "air_time"):
        table = table.append_column(name, pa.nulls(table.num_rows, pa.float64()))
    for name in ("origin", "dest"):
        table = table.append_column(name, pa.array(["JFK"] * table.num_rows))
    with client.producer(topic) as producer:
        producer.write(table)


def truth(table: pa.Table) -> list[dict[str, Any]]:
    """Of the hours that are older than the newest flight by the watermark."""
    newest = pc.max(table["time_hour"]).as_py()
    old = table.filter(pc.less_equal(table["time_hour"], pa.scalar(newest - WATERMARK - timedelta(hours=1))))
    old = old.append_column("cancelled", pc.cast(pc.is_null(old["dep_delay"]), pa.int64()))
    grouped = old.group_by(["time_hour", "carrier"]).aggregate(
        [([], "count_all"), ("cancelled", "sum"), ("dep_delay", "mean")]
    )
    names = ["hour", "carrier", "flights", "cancelled", "mean_dep_delay"]
    return in_order(grouped.select([*grouped.column_names[:2], "count_all", "cancelled_sum", "dep_delay_mean"]), names)


def in_order(table: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    table = table.rename_columns(names)
    hours = pc.cast(table["hour"], pa.timestamp("us"))  # Spark's own Parquet files have no zone
    rows = table.set_column(0, "hour", hours).sort_by([("hour", "ascending"), ("carrier", "ascending")]).to_pylist()
    means = [row["mean_dep_delay"] for row in rows]
    return [
        {**row, "mean_dep_delay": None if mean is None else round(mean, 9)}
        for row, mean in zip(rows, means, strict=True)
    ]


@pytest.mark.slow
def test_each_hour_is_in_topic_and_table_once(
    spark: SparkSession, cluster: LocalCluster, client: smq.Client, topic: str, tmp_path: Path, capfd: Any
) -> None:
    result = f"{topic}-hourly"
    cluster.create(topic, **spec_of("flights"))
    cluster.create(result, **spec_of("flights-hourly"))
    places = Places(
        Connection(topic, leader=cluster.address),
        Connection(result, leader=cluster.address),
        str(tmp_path / "table"),
        str(tmp_path / "checkpoint"),
    )
    seen = []
    for first in (0, HOURS):
        seen.append(flights(first, HOURS))
        publish(client, topic, seen[-1])
        assert run_patiently(lambda: run(spark, places, "12 hours", available_now=True)) == 0
        expected = truth(pa.concat_tables(seen))
        names = ["hour", "carrier", "flights", "cancelled", "mean_dep_delay"]
        with client.consumer(result) as consumer:
            published = pa.concat_tables(b.table.select(names) for b in read_back(consumer, len(expected)))
        assert in_order(published, names) == expected
        table = ds.dataset(tmp_path / "table", format="parquet", exclude_invalid_files=True).to_table(columns=names)
        assert in_order(table, names) == expected

    publish(client, topic, flights(0, 1))
    assert run_patiently(lambda: run(spark, places, "12 hours", available_now=True)) > 0
    assert "late rows" in capfd.readouterr().err
