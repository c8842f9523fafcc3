"""The stream reader: ``spark.readStream.format("smq")``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_smq.options import StreamOptions
from pyspark_smq.planning.range_partition import RangePartition
from pyspark_smq.planning.stream_positions import StreamPositions
from pyspark_smq.spark_types import arrow_schema, check_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_smq.planning.stream_plan import StreamPlan
    from smq.reading import OpenedTopic


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark plans all micro-batches of a query in one process, and sends copies of this to its tasks for ``read``."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._opened: OpenedTopic | None = None
        self._plan: StreamPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema, "_opened": None, "_plan": None}

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Raises InvalidOption, UnknownTopic, Unavailable, StoreDenied."""
        return self._planned().initial().to_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends. Spark knows one limit at a time, so the options' other one is added.

        Raises DataLost, InvalidOption (a checkpoint of another topic), UnknownTopic, Unavailable, StoreDenied.
        """
        plan = self._planned()
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if rows is not None or size is not None:
            size = self._options.max_bytes_per_trigger if size is None else size
        return plan.following(self._parse(start), rows, size).to_offset()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        found = self._planned().latest()
        return found.to_offset() if found is not None else None

    def prepareForTriggerAvailableNow(self) -> None:
        self._planned().stop_at_present_ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raises DataLost, InvalidOption, UnknownTopic, Unavailable, StoreDenied."""
        plan = self._planned()
        return [*plan.partitions(self._parse(start), self._parse(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())
        from pyspark_smq.source.partition_reader import read_partition

        return read_partition(partition, arrow_schema(self._schema))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing has to be kept: the checkpoint has the positions."""

    def stop(self) -> None:
        if self._plan is not None:
            self._plan.close()
            self._plan = None

    def _planned(self) -> StreamPlan:
        if self._plan is None:
            from pyspark_smq.planning.stream_plan import StreamPlan
            from smq.reading import open_topic

            connection = self._options.connection
            self._opened = open_topic(connection.topic, **connection.arguments())
            check_schema(self._schema, self._opened.chunk_schema)
            self._plan = StreamPlan(self._options, self._opened)
        return self._plan

    def _parse(self, offset: dict[str, Any]) -> StreamPositions:
        self._planned()
        assert self._opened is not None
        return StreamPositions.parse(offset, self._opened.location)
