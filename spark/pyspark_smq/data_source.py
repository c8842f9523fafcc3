"""The data source ``smq``: what Spark finds, and from which it makes readers and writers.

Spark calls each method in a separate Python process, so that nothing is kept between two calls. Readers and writers
are imported on use: a process of an executor loads only what it runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from pyspark_smq.errors import OverwriteRefused
from pyspark_smq.options import ReadOptions, StreamOptions, WriteOptions
from pyspark_smq.spark_version import check_spark

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class SmqDataSource(DataSource):
    """``spark.read.format("smq")``, ``readStream``, ``write`` and ``writeStream``; docs/spark.md has the options."""

    @classmethod
    def name(cls) -> str:
        return "smq"

    def schema(self) -> StructType:
        """The columns of the topic's newest schema.

        Spark does not say whether it plans a batch or a stream, so that the options are checked by whoever comes next.
        Raises InvalidOption, UnknownTopic, Unavailable, StoreDenied.
        """
        from pyspark_smq.spark_types import spark_schema
        from smq.reading import open_topic

        check_spark()
        options = self._read_options()
        opened = open_topic(options.connection.topic, **options.connection.arguments())
        return spark_schema(opened.chunk_schema, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        check_spark()
        options = ReadOptions.parse(self.options)
        # Spark refuses each read of a reader that has a method pushFilters unless a setting allows it.
        name = "FilteringBatchReader" if options.push_filters else "BatchReader"
        return _class("source.batch_reader", name)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_spark()
        return _class("source.stream_reader", "StreamReader")(StreamOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        check_spark()
        _refuse_overwrite(overwrite)
        return _class("sink.batch_writer", "BatchWriter")(WriteOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        check_spark()
        if overwrite:
            raise OverwriteRefused(
                'the output mode "complete" writes all rows again in each micro-batch, and a topic keeps what it has: '
                'use "append" or "update"'
            )
        return _class("sink.stream_writer", "StreamWriter")(WriteOptions.parse(self.options, stream=True), schema)

    def _read_options(self) -> ReadOptions | StreamOptions:
        stream = {name.lower() for name in ("maxRowsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger")}
        if any(name.lower() in stream for name in self.options):
            return StreamOptions.parse(self.options)
        return ReadOptions.parse(self.options)


def _class(module: str, name: str) -> Any:
    return getattr(import_module(f"pyspark_smq.{module}"), name)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise OverwriteRefused(
            'mode("overwrite") would delete what the topic has, and a topic is a log that others read: use '
            'mode("append"). To begin anew, delete the topic and create it again, or write to a topic of another name'
        )
