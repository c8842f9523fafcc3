"""Verifies a topic: every offset is there once, and the numbers of each key rise. Its tasks read the topic in parallel.

smq --leader leader:7070 spark verify --topic travel/flights --sequence number

Prints a line for each segment, and a checksum of all rows that does not depend on their order: the same rows have the
same one, in whatever segments they are. With ``--sequence`` each key's values of that column must rise from one message
to the next, through splits and merges. Ends with exit code 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyspark_smq
from pyspark_smq.jobs.arguments import add_connection, add_topic, connection_to
from pyspark_smq.options import Connection
from pyspark_smq.spark_types import OFFSET, SEGMENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Columns that say where a message is, or when it came there.
NOT_COMPARED = ("partition", "appended", SEGMENT, OFFSET)


@dataclass(frozen=True, slots=True)
class VerifiedSegment:
    """``first`` is the lowest offset, ``end`` the one after the highest."""

    name: str
    rows: int
    offsets: int
    """How many different ones."""
    first: int
    end: int

    @property
    def problem(self) -> str:
        """Empty if every offset from the first to the last is there once."""
        if self.rows != self.offsets:
            return f"{self.rows - self.offsets} rows have an offset that another row has"
        if self.end - self.first != self.rows:
            return f"{self.end - self.first - self.rows} offsets are missing"
        return ""


@dataclass(frozen=True, slots=True)
class Verified:
    """``disorder`` is the number of messages whose sequence is not above that of the message before, by key."""

    segments: tuple[VerifiedSegment, ...]
    checksum: int
    disorder: int | None

    @property
    def is_whole(self) -> bool:
        return not self.disorder and not any(segment.problem for segment in self.segments)


def verify(spark: SparkSession, connection: Connection, sequence: str | None = None) -> Verified:
    """Reads the whole topic once, and once more for ``sequence``. Raises as :func:`pyspark_smq.read`."""
    from smq.reading import load_state, open_topic

    opened = open_topic(connection.topic, **connection.arguments())
    frame = pyspark_smq.read(spark, connection.topic, **connection.read_arguments())
    try:
        disorder = None
        if sequence is not None:
            depths = {name: depth for depth, name in enumerate(load_state(opened.location).segments())}
            disorder = count_disorder(frame, opened.key, sequence, depths)
        return Verified(count_segments(frame), checksum(frame), disorder)
    finally:
        pyspark_smq.release(frame)


def count_segments(frame: DataFrame) -> tuple[VerifiedSegment, ...]:
    """What there is of each segment."""
    from pyspark.sql import functions as F

    counted = frame.groupBy(SEGMENT).agg(
        F.count("*").alias("rows"),
        F.count_distinct(OFFSET).alias("offsets"),
        F.min(OFFSET).alias("first"),
        (F.max(OFFSET) + 1).alias("end"),
    )
    return tuple(
        VerifiedSegment(row[SEGMENT], row["rows"], row["offsets"], row["first"], row["end"])
        for row in counted.orderBy(SEGMENT).collect()
    )


def checksum(frame: DataFrame) -> int:
    """The sum of the rows' hashes, modulo 2**64, so that equal sets of rows have equal ones."""
    from pyspark.sql import functions as F

    names = [name for name in frame.columns if name not in NOT_COMPARED]
    # Halves are summed apart, because Spark ends a query whose sum overflows.
    value = F.xxhash64(*(F.to_json(F.struct(name)) if _is_map(frame, name) else F.col(f"`{name}`") for name in names))
    low = F.sum(value.bitwiseAND(F.lit(0xFFFFFFFF)))
    high = F.sum(F.shiftrightunsigned(value, 32))
    (found,) = frame.agg(low.alias("low"), high.alias("high")).collect()
    return ((found["high"] or 0) * 2**32 + (found["low"] or 0)) % 2**64


def count_disorder(frame: DataFrame, key: str | None, sequence: str, depths: Mapping[str, int]) -> int:
    """How many messages have a sequence that is not above that of their key's message before.

    ``depths`` orders segments so that predecessors come before their successors.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if key is None:
        return 0  # messages without keys have no order
    order = F.create_map(*(F.lit(word) for pair in depths.items() for word in pair))
    window = Window.partitionBy(f"`{key}`").orderBy(order[F.col(SEGMENT)], OFFSET)
    keyed = frame.where(F.col(f"`{key}`").isNotNull())
    before = keyed.withColumn("#before", F.lag(f"`{sequence}`").over(window))
    return before.where(F.col("`#before`") >= F.col(f"`{sequence}`")).count()


def _is_map(frame: DataFrame, name: str) -> bool:
    """Spark has no hash of maps."""
    return "map<" in frame.schema[name].dataType.simpleString()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pyspark_smq.jobs.verify", description=__doc__.splitlines()[0])
    add_topic(parser)
    parser.add_argument("--sequence", metavar="COLUMN", help="a column whose values rise for each key")
    add_connection(parser)
    given = parser.parse_args(arguments)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"verify {given.topic}").getOrCreate()
    try:
        found = verify(spark, connection_to(given.topic, given), given.sequence)
    finally:
        spark.stop()
    for segment in found.segments:
        print(f"{segment.name}: {segment.rows} rows, offsets {segment.first} to {segment.end - 1} {segment.problem}")
    if found.disorder:
        print(f"{found.disorder} messages have a {given.sequence} that is not above that of their key's message before")
    print(f"{sum(it.rows for it in found.segments)} rows, checksum {found.checksum:016x}: {_verdict(found)}")
    return 0 if found.is_whole else 1


def _verdict(found: Verified) -> str:
    return "whole" if found.is_whole else "damaged"


if __name__ == "__main__":
    sys.exit(main())
