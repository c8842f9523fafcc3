"""The compaction as a Spark program: the driver plans and switches, and tasks merge.

smq --leader leader:7070 spark --master local[2] compact --topic travel/flights
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark_smq.jobs.arguments import add_connection, add_topic, connection_to
from pyspark_smq.options import Connection
from pyspark_smq.planning.shared_stores import shared_store
from smq_core.file_lists.file_list import FileEntry
from smq_core.model.units import parse_size
from smq_storage.compaction.topic_compaction import CompactedSegment, MergeTask, check_key, compact_topic, run_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from smq.reading import TopicLocation


def compact(spark: SparkSession, connection: Connection, target_bytes: int) -> Iterator[CompactedSegment]:
    """Compacts a topic, as :func:`smq_storage.compaction.topic_compaction.compact_topic`, with Spark's tasks."""
    from smq.reading import open_topic

    opened = open_topic(connection.topic, **connection.arguments())
    location = opened.location
    check_key(location.store, location.topic)

    def merge_all(tasks: Sequence[MergeTask]) -> list[list[FileEntry]]:
        merges = spark.sparkContext.parallelize(tasks, len(tasks))
        return merges.mapPartitions(lambda mine: _merge(location, mine)).collect()

    return compact_topic(shared_store(location), location.topic, location.uid, opened.key, merge_all, target_bytes)


def _merge(location: TopicLocation, tasks: Iterator[MergeTask]) -> Iterator[list[FileEntry]]:
    store = shared_store(location)
    return (run_task(store, task) for task in tasks)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="pyspark_smq.jobs.compact", description=__doc__.splitlines()[0])
    add_topic(parser)
    add_connection(parser)
    parser.add_argument("--target", default="32Mi", help="about how large the merged files become (%(default)s)")
    given = parser.parse_args(arguments)
    connection = connection_to(given.topic, given)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"compact {given.topic}").getOrCreate()
    try:
        for done in compact(spark, connection, parse_size(given.target)):
            outcome = f"became {done.new_files}" if done.switched else "stay, because the segment was changed meanwhile"
            print(f"{done.segment}: {done.merged_files} files, {done.bytes / 1e6:.1f} MB, {outcome}", flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
