"""A stream of Spark's own Kafka source, in the interpreter of the Spark that has one.

``python spark_stream.py BOOTSTRAP TOPIC JARS CHECKPOINT OUTPUT MAX_OFFSETS ROWS`` ends when the stream has written that
many rows in all, also before it was started.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(bootstrap: str, topic: str, jars: str, checkpoint: str, output: str, max_offsets: str, rows: str) -> None:
    settings = {
        "spark.jars": ",".join(map(str, Path(jars).glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = SparkSession.builder.master("local[2]").appName("kafka").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": max_offsets,
    }
    stream = (
        spark.readStream.format("kafka")
        .options(**options)
        .load()
        .selectExpr("partition", "offset", "cast(key as string) key", "cast(value as string) value")
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .option("path", output)
        .start()
    )

    def written() -> int:
        folder = Path(output) / "_spark_metadata"
        return int(spark.read.schema("value string").parquet(output).count()) if folder.exists() else 0

    while written() < int(rows):
        if not stream.isActive:
            raise SystemExit(str(stream.exception()))
        stream.awaitTermination(1)
    stream.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
