"""The stream writer: ``df.writeStream.format("smq")``.

A micro-batch is published as a version of an app, which the query has for itself. Spark repeats a micro-batch that may
not have been committed, with the same id and the same rows, and the queue publishes a version once.

Two drivers may run the same query, because the first one is cut off and does not know it. The owner of the app is the
run of the query. Its first commit takes the app over, and the run before is refused from then on, so its query fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_smq.options import WriteOptions
from pyspark_smq.sink.publishing import delete_uploads, publish_rows
from pyspark_smq.sink.staging import StagedRows, stage_rows, staged_rows

# The local property with the id that the query keeps in its checkpoint.
QUERY_ID = "sql.streaming.queryId"

# The local property with the id of the query's run: Spark runs each micro-batch as a job of this group.
RUN_ID = "spark.jobGroup.id"


class StreamWriter(DataSourceStreamArrowWriter):
    """Made anew for each micro-batch, and for its commit, which may be in another process."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        task = TaskContext.get()
        assert task is not None
        query, run = task.getLocalProperty(QUERY_ID) or "", task.getLocalProperty(RUN_ID) or ""
        return stage_rows(iterator, self._options.connection, self._options.timeout, query, run)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Raises ProducerFenced, SchemaMismatch, InvalidRequest, UnknownTopic, Unavailable, DeliveryTimeout."""
        staged = staged_rows(messages)
        if not staged:
            return  # a micro-batch without tasks has no rows
        options = self._options
        app = f"spark-{staged[0].query}"
        publish_rows(staged, options.connection, app, batchId, options.timeout, owner=staged[0].run or None)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        delete_uploads(staged_rows(messages), self._options.connection)
