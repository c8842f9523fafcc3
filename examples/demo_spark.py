"""The demo's stream on Spark: flights per carrier, counted while segments split and merge.

``python -m examples.demo_spark LEADER FOLDER`` writes FOLDER/counts.json after each micro-batch. When FOLDER/stop is
there, it counts what has come until then, and ends.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

T = TypeVar("T")

COUNTS, STOP = "counts.json", "stop"
# Spark gives Python 10 s to start, which is not always enough on a busy machine. The checkpoint lets a query go on.
SLOW_START = "Python worker failed to connect back"
STARTS = 5
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


def main(leader: str, folder: str) -> None:
    files = Path(folder)
    builder = SparkSession.builder.master("local[2]").appName("demo").config("spark.local.dir", folder)
    spark = builder.config(map=SETTINGS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    options = {"topic": "flights", "leader": leader, "columns": "carrier", "startingPosition": "earliest"}
    counts = spark.readStream.format("smq").options(**options).load().groupBy("carrier").count()

    def write(result: DataFrame, batch: int) -> None:
        (files / "counts.new").write_text(json.dumps({row["carrier"]: row["count"] for row in result.collect()}))
        (files / "counts.new").rename(files / COUNTS)

    def start(**trigger: Any) -> StreamingQuery:
        writer = counts.writeStream.outputMode("complete").foreachBatch(write)
        return writer.option("checkpointLocation", str(files / "checkpoint")).trigger(**trigger).start()

    query = start(processingTime="3 seconds")
    while not (files / STOP).exists():
        if (failure := query.exception()) is not None:
            if SLOW_START not in str(failure):
                raise failure
            query = start(processingTime="3 seconds")
        time.sleep(0.2)
    query.stop()
    run_patiently(lambda: start(availableNow=True).awaitTermination())


def run_patiently(run: Callable[[], T]) -> T:
    """Runs a query, and again from its checkpoint if Python started too slowly for Spark."""
    left = STARTS
    while True:
        left -= 1
        try:
            return run()
        except StreamingQueryException as failure:
            if SLOW_START not in str(failure) or not left:
                raise
            print("Python did not start within 10 s on this busy machine; the query goes on", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
