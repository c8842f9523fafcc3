"""Old data into a topic: rows that Spark reads from files, by reference and in the order of their time.

smq --leader leader:7070 spark backfill --topic flights --path s3a://bucket/2013 --time time_hour --app flights-2013

Rows are cut into buckets of time, one day by default. Each bucket is one version of the app, published whole and once.
So the job can be killed and run again: it goes on after the last bucket that was published. Between runs the app's name
stands for the same rows in the same buckets: use another name for other rows. Other producers may write meanwhile.

The rows of a key are in the order of their time. Rows without a time are refused, because they have no bucket.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark_smq.errors import InvalidOption
from pyspark_smq.jobs.arguments import add_connection, add_topic, connection_to
from pyspark_smq.options import Connection
from pyspark_smq.sink.arrangement import by_segment
from smq_core.model.entities import SECOND
from smq_core.model.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rows with a time from ``start`` on, and before ``start`` + the bucket's length."""

    version: int
    start: datetime
    rows: int


def backfill(
    frame: DataFrame, connection: Connection, time: str, app: str, length: timedelta, tasks_per_segment: int = 1
) -> Iterator[Bucket]:
    """Publishes what is not published yet, and yields each bucket when it is in the log.

    ``time`` names a timestamp column. Raises InvalidOption for rows without a time or before 1970, and what a write of
    ``format("smq")`` raises.
    """
    from pyspark.sql import functions as F

    seconds = int(length.total_seconds())
    app = f"backfill-{app}-{seconds}s"  # with buckets of another length versions mean other rows
    column = F.col(f"`{time}`")
    bucket = F.floor(F.unix_micros(column) / (seconds * 1_000_000)).cast("long")
    counted = frame.groupBy(bucket.alias("version")).count().orderBy("version").collect()
    _check([row["version"] for row in counted], time)
    with connection.connect() as client:
        last = client.last_version(connection.topic, app=app)
    for row in counted:
        version = row["version"]
        if last is not None and version <= last:
            continue
        start = EPOCH + version * length
        of_bucket = frame.where((column >= F.lit(start)) & (column < F.lit(start + length)))
        arranged = by_segment(
            of_bucket, connection.topic, tasks_per_segment=tasks_per_segment, **connection.read_arguments()
        )
        options = connection.spark_options() | {"txnAppId": app, "txnVersion": str(version)}
        arranged.sortWithinPartitions(column).write.format("smq").mode("append").options(**options).save()
        yield Bucket(version, start, row["count"])


def _check(versions: Sequence[int | None], time: str) -> None:
    if None in versions:
        raise InvalidOption(f"rows without a value in {time!r} have no place in the order: leave them out, or fill it")
    if any(version is not None and version < 0 for version in versions):
        raise InvalidOption(f"rows with a {time!r} before 1970 cannot be backfilled: they would need negative versions")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pyspark_smq.jobs.backfill", description=__doc__.splitlines()[0])
    add_topic(parser)
    parser.add_argument("--path", required=True, help="what Spark reads")
    parser.add_argument("--format", default="parquet", help="of the files, as Spark names it (%(default)s)")
    parser.add_argument("--time", required=True, metavar="COLUMN", help="the timestamp column that orders the rows")
    parser.add_argument("--app", required=True, help="a name for these rows, the same one when the job is run again")
    parser.add_argument("--bucket", default="24h", help="how much time is published at once (%(default)s)")
    parser.add_argument("--tasks-per-segment", type=int, default=1, help="more if buckets are large (%(default)s)")
    add_connection(parser)
    given = parser.parse_args(arguments)
    length = timedelta(seconds=parse_duration(given.bucket) / SECOND)
    from pyspark.sql import SparkSession

    spark: SparkSession = SparkSession.builder.appName(f"backfill {given.topic}").getOrCreate()
    try:
        frame = spark.read.format(given.format).load(given.path)
        connection = connection_to(given.topic, given)
        for done in backfill(frame, connection, given.time, given.app, length, given.tasks_per_segment):
            print(f"{done.start.isoformat()}: {done.rows} rows", flush=True)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
