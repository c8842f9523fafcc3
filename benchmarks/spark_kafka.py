"""``python -m benchmarks.spark_kafka``: Spark's own Kafka source, on the load of ``benchmarks.spark_read``.

    python -m benchmarks.spark_kafka                          1 GB of 1 KB records, 3 warm runs
    python -m benchmarks.spark_kafka --megabytes 100 --runs 1

Two brokers with every record on both. The source is the newest one that can be had with all of its jars.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from benchmarks.harness import tools  # noqa: E402
from benchmarks.harness.meter import wait_until_quiet  # noqa: E402
from benchmarks.harness.tools import ToolMissing  # noqa: E402
from benchmarks.peers.kafka import Kafka  # noqa: E402
from benchmarks.peers.kafka_clients import HERE  # noqa: E402

SIZE = 1000
SPARK = "4.0.0"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    try:
        python = tools.venv(HERE / "spark-kafka.txt") / "python"
        jars = tools.jars(HERE / "spark-kafka-pom.xml", f"spark-kafka-{SPARK}")
        kafka = Kafka(ROOT / "build" / "bench" / "kafka")
    except ToolMissing as error:
        print(f"Spark's Kafka source is left out: {error}")
        return 0
    rows = given.megabytes * 1_000_000 // SIZE
    with kafka:
        topic = kafka.topic()
        kafka.produce_java(topic, SIZE, rows).wait()
        wait_until_quiet(30)
        program = [python, HERE / "spark_kafka_read.py", kafka.bootstrap, topic, jars, given.runs + 1]
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"):
            os.environ.pop(name, None)
        lines = tools.run([str(word) for word in program]).splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    assert all(it["rows"] == rows for it in found), f"it found {found}, not {rows} rows"
    cold, *warm = (it["bytes"] / it["seconds"] / 1e6 for it in found)
    print(f"Kafka source of Spark {SPARK}: {median(warm):.0f} MB/s, the first read {cold:.0f} MB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
