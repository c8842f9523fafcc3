"""The batch reader: ``spark.read.format("smq")``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from pyspark_smq.options import ReadOptions
from pyspark_smq.planning.batch_plan import open_for_read, plan_batch
from pyspark_smq.planning.range_partition import RangePartition
from pyspark_smq.planning.wanted import Wanted
from pyspark_smq.source.pushed_filters import wanted_by
from pyspark_smq.spark_types import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Spark plans in one process (``partitions``) and reads each partition in a task (``read``)."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filters: tuple[Filter, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """Raises InvalidOption, UnknownTopic, Unavailable, StoreDenied, DataLost, PinExpired, UnreadableSchema."""
        opened = open_for_read(self._options, self._schema)
        wanted = wanted_by(self._filters, opened.chunk_schema, opened.key) if self._filters else Wanted()
        return [*plan_batch(self._options, opened, wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())  # what Spark makes of a plan without any partition
        from pyspark_smq.source.partition_reader import read_partition

        return read_partition(partition, arrow_schema(self._schema))


class FilteringBatchReader(BatchReader):
    """Leaves out files by the filters of the query. Spark filters the rows that come."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = tuple(filters)
        return filters
