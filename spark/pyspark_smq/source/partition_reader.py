"""Reads one partition in a task: exactly the planned offsets, as Spark's batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pyspark_smq.planning.range_partition import RangePartition
from pyspark_smq.planning.shared_pin import SharedPin, check_pin
from pyspark_smq.planning.shared_stores import shared_store
from pyspark_smq.planning.wanted import TimeBounds
from pyspark_smq.spark_types import to_spark_batches, topic_columns
from smq.reading import RangeReader
from smq_core.errors import DataLost


def read_partition(partition: RangePartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of the partition's ranges, one range after the other, as batches of this schema.

    ``schema`` is an ``arrow_schema``. Raises PinExpired if a pin that its planner keeps has ended, also for a partition
    of no range. Raises DataLost (or PinExpired, if the pin had ended meanwhile), UnreadableSchema,
    UnknownTopic, Unavailable, StoreDenied, CorruptChunk and CorruptDocument.
    """
    store = shared_store(partition.location)
    if partition.pin is not None and not partition.renews:
        # Spark plans a DataFrame once. So only a task finds out at each run whether its files are protected.
        check_pin(store, partition.location, partition.pin)
    pin = SharedPin(store, partition.location, partition.pin, partition.renews, partition.pin_lifetime)
    reader = RangeReader(partition.location, store, on_loss=partition.on_loss)
    columns = topic_columns(schema)
    if partition.appended.is_bounded and "appended" not in columns:
        columns = [*columns, "appended"]
    try:
        for it in partition.ranges:
            pin.keep()
            found = reader.read(it.segment, it.start, it.stop, columns, it.replicas, it.flushed)
            for first, table in found:
                pin.keep()
                for offset, rows in appended_within(first, table, partition.appended):
                    yield from to_spark_batches(rows, offset, it.segment.name, schema)
    except DataLost as error:
        pin.explain(error)


def appended_within(first: int, table: pa.Table, bounds: TimeBounds) -> Iterator[tuple[int, pa.Table]]:
    """The rows that were appended within the bounds, as runs with their first offsets."""
    if not bounds.is_bounded:
        yield first, table
        return
    times = table.column("appended").cast(pa.int64()).to_numpy()
    wanted = np.ones(len(times), bool)
    if bounds.start is not None:
        wanted &= times >= bounds.start
    if bounds.stop is not None:
        wanted &= times < bounds.stop
    edges = np.flatnonzero(np.diff(np.concatenate(([0], wanted.view(np.int8), [0]))))
    for start, stop in edges.reshape(-1, 2).tolist():
        yield first + start, table.slice(start, stop - start)
