"""Departure delays of flights per carrier and hour, as a stream from a topic into a topic, and from there into a table.

smq --leader leader:7070 spark flights-hourly --topic flights --result flights-hourly --table s3a://bucket/hourly
    --checkpoint s3a://bucket/checkpoints/hourly

An hour is published once it is older than the newest flight by the watermark's delay. A flight that comes later
cannot be counted any more: Spark drops it, and the job says how many. Each hour is in the topic and in the table once,
whatever is killed and started again, as long as the checkpoint stays.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_smq.jobs.arguments import add_connection, add_topic, connection_to
from pyspark_smq.options import Connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TIME, CARRIER, DELAY = "time_hour", "carrier", "dep_delay"


@dataclass(frozen=True, slots=True)
class Places:
    """``flights`` and ``result`` are topics; ``table`` and ``checkpoint`` are folders that Spark can write to."""

    flights: Connection
    result: Connection
    table: str
    checkpoint: str


def hourly_delays(flights: DataFrame, watermark: str) -> DataFrame:
    """``hour``, ``carrier``, ``flights``, ``cancelled`` and ``mean_dep_delay`` in minutes (null: none left)."""
    from pyspark.sql import functions as F

    windows = flights.withWatermark(TIME, watermark).groupBy(F.window(TIME, "1 hour"), CARRIER)
    counted = windows.agg(
        F.count("*").alias("flights"),
        F.count_if(F.col(DELAY).isNull()).alias("cancelled"),
        F.avg(DELAY).alias("mean_dep_delay"),
    )
    return counted.select(F.col("window.start").alias("hour"), CARRIER, "flights", "cancelled", "mean_dep_delay")


def start_aggregation(spark: SparkSession, places: Places, watermark: str, trigger: dict[str, Any]) -> StreamingQuery:
    """The query from the flights to the result topic."""
    flights = _read(spark, places.flights, columns=f"{CARRIER},{TIME},{DELAY}", startingPosition="earliest")
    writer = hourly_delays(flights, watermark).writeStream.format("smq").options(**places.result.spark_options())
    return _start(writer, f"{places.checkpoint}/aggregation", trigger)


def start_table(spark: SparkSession, places: Places, trigger: dict[str, Any]) -> StreamingQuery:
    """The query from the result topic to the Parquet table."""
    columns = "hour,carrier,flights,cancelled,mean_dep_delay"
    result = _read(spark, places.result, columns=columns, startingPosition="earliest")
    writer = result.writeStream.format("parquet").option("path", places.table)
    return _start(writer, f"{places.checkpoint}/table", trigger)


def _read(spark: SparkSession, connection: Connection, **options: str) -> DataFrame:
    return spark.readStream.format("smq").options(**connection.spark_options(), **options).load()


def _start(writer: DataStreamWriter, checkpoint: str, trigger: dict[str, Any]) -> StreamingQuery:
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()


def run(spark: SparkSession, places: Places, watermark: str, available_now: bool) -> int:
    """Runs both queries until one fails, or until everything is read. The number of flights that came too late."""
    from pyspark_smq.jobs.late_rows import LateRows

    late = LateRows()
    spark.streams.addListener(late)
    try:
        if available_now:
            trigger: dict[str, Any] = {"availableNow": True}
            start_aggregation(spark, places, watermark, trigger).awaitTermination()
            start_table(spark, places, trigger).awaitTermination()
        else:
            trigger = {"processingTime": "1 second"}
            queries = [start_aggregation(spark, places, watermark, trigger), start_table(spark, places, trigger)]
            try:
                spark.streams.awaitAnyTermination()
            finally:
                for query in queries:
                    query.stop()
    finally:
        spark.streams.removeListener(late)
    return late.rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pyspark_smq.jobs.flights_hourly", description=__doc__.splitlines()[0])
    add_topic(parser)
    add_topic(parser, "--result", "the topic of the result")
    parser.add_argument("--table", required=True, help="the folder of the Parquet table")
    parser.add_argument("--checkpoint", required=True, help="the folder of the checkpoints; keep it between runs")
    parser.add_argument("--watermark", default="1 day", help="how late a flight may come (%(default)s)")
    parser.add_argument("--available-now", action="store_true", help="ends when everything is read")
    add_connection(parser)
    given = parser.parse_args(arguments)
    places = Places(
        connection_to(given.topic, given),
        connection_to(given.result, given),
        given.table.rstrip("/"),
        given.checkpoint.rstrip("/"),
    )
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"hourly delays of {given.topic}").getOrCreate()
    try:
        late = run(spark, places, given.watermark, given.available_now)
    finally:
        spark.stop()
    if late:
        print(
            f"{late} flights came later than the watermark of {given.watermark} and were not counted", file=sys.stderr
        )
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
