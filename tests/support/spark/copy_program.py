"""A driver that copies one topic to another: ``copy_program.py MASTER LEADER SOURCE TARGET CHECKPOINT``.

It runs until it is killed or its query fails. Tasks are speculated as soon as that is possible.
"""

from __future__ import annotations

import sys
from pathlib import Path

from support.spark.session import start_spark

ROWS_PER_BATCH = 150
SETTINGS = {
    "spark_task_maxFailures": "20",
    "spark_speculation": "true",
    "spark_speculation_interval": "50ms",
    "spark_speculation_multiplier": "1.01",
    "spark_speculation_quantile": "0.1",
    "spark_speculation_minTaskRuntime": "10ms",
    "spark_executor_memory": "512m",
    "spark_driver_memory": "512m",
}


def main(master: str, leader: str, source: str, target: str, checkpoint: str) -> None:
    spark = start_spark(Path(checkpoint).parent / "spark", master, **SETTINGS)
    read = {"topic": source, "leader": leader, "columns": "key,value", "startingPosition": "earliest"}
    frame = (
        spark.readStream.format("smq").options(**read, maxRowsPerTrigger=str(ROWS_PER_BATCH), minPartitions="4").load()
    )
    write = {"topic": target, "leader": leader, "checkpointLocation": checkpoint}
    print("started", flush=True)
    frame.writeStream.format("smq").options(**write).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
