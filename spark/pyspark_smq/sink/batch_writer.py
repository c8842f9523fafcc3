"""The batch writer: ``df.write.format("smq").mode("append")``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_smq.options import WriteOptions
from pyspark_smq.sink.columns import check_columns
from pyspark_smq.sink.publishing import delete_uploads, publish_rows
from pyspark_smq.sink.staging import StagedRows, stage_rows, staged_rows


class BatchWriter(DataSourceArrowWriter):
    """One write: all rows of the DataFrame are published, or none.

    With the options ``txnAppId`` and ``txnVersion`` a repeated write publishes nothing again.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Raises SchemaMismatch if the topic does not take these columns, UnknownTopic, Unavailable."""
        self._options = options
        self._app = f"spark-write-{uuid.uuid4().hex}" if options.txn_app_id is None else options.txn_app_id
        check_columns(schema, options.connection)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return stage_rows(iterator, self._options.connection, self._options.timeout)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Raises ProducerFenced, SchemaMismatch, InvalidRequest, UnknownTopic, Unavailable, DeliveryTimeout."""
        options = self._options
        publish_rows(
            staged_rows(messages),
            options.connection,
            self._app,
            options.txn_version or 0,
            options.timeout,
            one_off=options.txn_app_id is None,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        delete_uploads(staged_rows(messages), self._options.connection)
