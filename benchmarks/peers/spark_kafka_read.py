"""Reads a topic with Spark's Kafka source, in the interpreter of the Spark that has one.

    python spark_kafka_read.py BOOTSTRAP TOPIC JARS RUNS

Prints for each run a JSON line: rows, bytes of values, seconds. The first one has a cold JVM.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main(bootstrap: str, topic: str, jars: str, runs: str) -> None:
    builder = SparkSession.builder.master("local[2]").appName("kafka")
    for name, value in {
        "spark.jars": ",".join(map(str, Path(jars).glob("*.jar"))),
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    for _ in range(int(runs)):
        began = time.monotonic()
        frame = spark.read.format("kafka").options(**options).load()
        (found,) = frame.agg(F.count("*"), F.sum(F.length("value"))).collect()
        print(json.dumps({"rows": found[0], "bytes": found[1], "seconds": time.monotonic() - began}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
