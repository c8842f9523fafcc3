"""Whether a topic takes the columns of a DataFrame, before any task runs."""

from __future__ import annotations

from pyspark.sql.types import StructType

from pyspark_smq.options import Connection
from pyspark_smq.sink.staging import to_topic_columns
from pyspark_smq.spark_types import arrow_schema


def check_columns(schema: StructType, connection: Connection) -> None:
    """Raises SchemaMismatch with what differs, UnknownTopic, Unavailable."""
    from smq.producing.encoding.batch_encoder import BatchEncoder
    from smq.reading import open_topic

    opened = open_topic(connection.topic, **connection.arguments())
    table = to_topic_columns(arrow_schema(schema).empty_table(), lambda: opened.chunk_schema)
    encoder = BatchEncoder(opened.topic, opened.schema)
    encoder.check(table)
    encoder.check_types(table.schema, table.schema.names, None)
