"""``pyspark_smq.by_segment``: arranges rows as the topic's segments are, so that each task writes to one of them.

A task's upload has a part for each segment of which it has rows: 200 tasks and 64 segments are 12,800 log entries. If
each task has the rows of one segment there are 200.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_smq.errors import InvalidOption
from pyspark_smq.options import Connection
from pyspark_smq.planning.shared_stores import shared_store
from pyspark_smq.spark_version import check_spark
from smq.producing.encoding.keys import canonical_bytes, partitions
from smq_core.model.entities import Layout
from smq_core.model.keyspace import Ring
from smq_storage.catalog.layouts import read_layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# No column of a topic has such a name.
TASK = "#task"


def by_segment(
    frame: DataFrame, topic: str, *, key: str | None = None, tasks_per_segment: int = 1, **connection: Any
) -> DataFrame:
    """The same rows, in ``tasks_per_segment`` tasks for each open segment. All rows of a key are in one task.

    key: the column whose values choose the segment: the topic's key column by default.
    connection: ``leader``, ``namespace``, ``via``, ``filer``..., as for :func:`pyspark_smq.read`.

    Segments that split later cost a few more parts, and nothing else. Raises InvalidOption if the frame has no such
    column, InvalidRequest for a key that no topic can have, UnknownTopic, Unavailable.
    """
    from pyspark.sql.types import IntegerType, StructType

    from smq.reading import open_topic

    check_spark(frame.sparkSession.version)
    if tasks_per_segment < 1:
        raise InvalidOption(f"tasks_per_segment is 1 or more, not {tasks_per_segment}")
    opened = open_topic(topic, **Connection(topic, **connection).arguments())
    name = key if key is not None else opened.key
    if name is None or (name not in frame.columns and key is not None):
        raise InvalidOption(f"the DataFrame has no column {name!r} by which segments are chosen: give key=")
    found = read_layout(shared_store(opened.location), opened.location.topic, opened.location.uid)
    assert found is not None, "an open topic has a layout"
    starts = range_starts(found[0])
    ring = opened.topic.spec.ring
    key_type = opened.chunk_schema.field(name).type if name in opened.chunk_schema.names else None

    def add_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        row = 0
        for batch in batches:
            column = batch.column(name) if name in batch.schema.names else None
            task = tasks_of(column, key_type, batch.num_rows, ring, starts, tasks_per_segment, row)
            row += batch.num_rows
            yield batch.append_column(TASK, pa.array(task, pa.int32()))

    schema = StructType([*frame.schema.fields]).add(TASK, IntegerType())
    arranged = frame.mapInArrow(add_task, schema).repartitionById(len(starts) * tasks_per_segment, f"`{TASK}`")
    return arranged.drop(TASK)


def range_starts(layout: Layout) -> list[int]:
    """Where the ranges of the living segments begin, in order."""
    return sorted({segment.range.start for segment in layout.segments}) or [0]


def tasks_of(
    keys: pa.Array | None,
    key_type: pa.DataType | None,
    rows: int,
    ring: Ring,
    starts: list[int],
    tasks_per_segment: int,
    first_row: int,
) -> npt.NDArray[np.int32]:
    """The task of each row, int32 of shape (rows,). Rows without a key go to all tasks in turn."""
    everywhere = (np.arange(first_row, first_row + rows) % (len(starts) * tasks_per_segment)).astype(np.int32)
    if keys is None:
        return everywhere
    if key_type is not None and keys.type != key_type:
        keys = keys.cast(key_type)
    chosen = partitions(canonical_bytes(keys), rows, ring, keyless=0)
    segment = np.searchsorted(np.asarray(starts), chosen, side="right") - 1
    tasks = (segment * tasks_per_segment + chosen % tasks_per_segment).astype(np.int32)
    null = keys.is_null().to_numpy(zero_copy_only=False)
    return np.where(null, everywhere, tasks).astype(np.int32)
