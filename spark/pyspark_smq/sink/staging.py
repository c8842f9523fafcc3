"""What a task does with its rows: it stages them, and publishes nothing.

Spark may run a task several times, and nobody is told which attempt was too much. So the rows are uploaded, or travel
in the message to the driver if they are few, and count only when the commit publishes them. Uploads that no commit
names are deleted by the leader after three days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_smq.options import Connection
from pyspark_smq.spark_types import OFFSET, SEGMENT

if TYPE_CHECKING:
    import smq

# Fewer rows travel in the commit message. An upload, and its log entry in each segment, cost more than their bytes.
INLINE_BYTES = 1024 * 1024

# A task uploads before it has more. A larger part would become two uploads, and brokers work for each of them.
UPLOAD_BYTES = 128 * 1024 * 1024

# Columns that say where a message was. A message that is written gets another place, also in ``partition``.
IGNORED = (SEGMENT, OFFSET)


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """The rows of one task. ``inline`` has an Arrow IPC stream, or nothing.

    ``query`` and ``run`` are Spark's ids of the streaming query and of its run; empty in a batch write.
    """

    uploads: tuple[smq.StagedFile, ...] = ()
    inline: bytes = b""
    query: str = ""
    run: str = ""

    @property
    def table(self) -> pa.Table | None:
        """The rows that are in the message."""
        return pa.ipc.open_stream(self.inline).read_all() if self.inline else None


def staged_rows(messages: Iterable[WriterCommitMessage | None]) -> list[StagedRows]:
    """The messages of the tasks that have ended; Spark has None for the others."""
    return [message for message in messages if isinstance(message, StagedRows)]


def stage_rows(
    batches: Iterable[pa.RecordBatch], connection: Connection, timeout: float, query: str = "", run: str = ""
) -> StagedRows:
    """Stages the rows of one task. Raises SchemaMismatch, UnknownTopic, StoreDenied, Unavailable."""
    uploads: list[smq.StagedFile] = []
    inline, chunk_schema = b"", chunk_schema_of(connection)
    with ExitStack() as stack:
        client: smq.Client | None = None
        for table, is_last in upload_parts(batches):
            if is_last and not uploads and table.nbytes < INLINE_BYTES:
                inline = _to_ipc(table) if table.num_rows else b""
                break
            if client is None:
                client = stack.enter_context(connection.connect())
            if table.num_rows:
                uploads += client.stage(connection.topic, table=to_topic_columns(table, chunk_schema), timeout=timeout)
    return StagedRows(tuple(uploads), inline, query, run)


def chunk_schema_of(connection: Connection) -> Callable[[], pa.Schema]:
    """Returns what finds the topic's columns when they are needed first, and remembers them."""

    @cache
    def chunk_schema() -> pa.Schema:
        from smq.reading import open_topic

        return open_topic(connection.topic, **connection.arguments()).chunk_schema

    return chunk_schema


def to_topic_columns(table: pa.Table, chunk_schema: Callable[[], pa.Schema]) -> pa.Table:
    """The table as the topic takes it: without Spark's own columns, and with unsigned numbers where it has such.

    ``chunk_schema`` returns the topic's columns; it is called only if the table has numbers that may be unsigned there.
    Raises SchemaMismatch for a number that does not fit.
    """
    import pyarrow.compute as pc

    from smq_core.errors import SchemaMismatch

    table = table.drop_columns([name for name in IGNORED if name in table.column_names])
    for number, field in enumerate(table.schema):
        if field.type != pa.decimal128(20, 0):
            continue
        wanted = chunk_schema()
        if field.name in wanted.names and pa.types.is_uint64(wanted.field(field.name).type):
            try:
                column = pc.cast(table.column(number), pa.uint64())
            except pa.ArrowInvalid as error:
                raise SchemaMismatch(f"column {field.name!r}: {error}", expected=str(wanted)) from None
            table = table.set_column(number, field.name, column)
    return table


def upload_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, bool]]:
    """The rows in parts of at most ``UPLOAD_BYTES`` or one batch, the last one with True. It may be empty."""
    collected: list[pa.RecordBatch] = []
    size = 0
    schema: pa.Schema | None = None
    for batch in batches:
        schema = batch.schema
        if collected and size + batch.nbytes > UPLOAD_BYTES:
            yield pa.Table.from_batches(collected), False
            collected, size = [], 0
        collected.append(batch)
        size += batch.nbytes
    yield pa.Table.from_batches(collected, schema) if schema is not None else pa.table({}), True


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
