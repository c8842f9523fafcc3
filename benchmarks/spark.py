"""``make bench-spark``: all measurements of Spark, one after the other, each in its own process.

    python -m benchmarks.spark                      everything with its defaults: about half an hour
    python -m benchmarks.spark --only read --only kafka

read        old data: pyspark_smq.read and format("smq") against Spark's own Parquet reader
kafka       Spark's own Kafka source, on the same load
batches     micro-batches, against those of Spark's rate source
sink        1 GB into a topic, exactly once
compaction  10,000 chunks of 100 KB
lag         a query that follows 100,000 messages/s for three minutes
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

CASES: dict[str, tuple[str, ...]] = {
    "read": ("benchmarks.spark_read",),
    "kafka": ("benchmarks.spark_kafka",),
    "batches": ("benchmarks.spark_write", "--only", "batches"),
    "sink": ("benchmarks.spark_write", "--only", "sink"),
    "compaction": ("benchmarks.spark_write", "--only", "compaction", "--runs", "1"),
    "lag": ("benchmarks.spark_lag",),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=CASES, action="append", help="one case; may be repeated")
    given = parser.parse_args()
    failed = []
    for name in given.only or CASES:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", *CASES[name]], cwd=ROOT, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
