"""Encodes a program's tables as wire batches, with the topic's columns in their order and types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from smq.producing.encoding.frames import Table, as_table
from smq.producing.encoding.keys import (
    KeylessPartitioner,
    canonical_bytes,
    key_bytes,
    partitions,
)
from smq_core.errors import InvalidRequest, MessageTooLarge, SchemaMismatch
from smq_core.model.entities import Topic, TopicSchema
from smq_storage.chunks.array_buffers import array_of
from smq_storage.chunks.column_types import declared_type, plain_type
from smq_storage.chunks.parquet_codec import message_schema
from smq_storage.chunks.schemas import TIMESTAMP
from smq_storage.conversion.exact_cast import InexactValue, exact_cast, may_fit, type_does_not_fit
from smq_storage.conversion.row_values import RowConverter, column_maker, no_such_columns
from smq_storage.uploads.large_values import HEADER, has_reserved_header

# Columns of consumed tables that a producer fills anew, so that a table that was read can be written unchanged.
SYSTEM_COLUMNS = ("partition", "appended")


class BatchEncoder:
    """Checks and encodes tables for one version of a topic's schema; None stands for that of the topic's spec."""

    def __init__(self, topic: Topic, schema: TopicSchema | None = None) -> None:
        self.topic = topic
        version = TopicSchema(0, topic.spec.schema) if schema is None else schema
        self.version = version.version
        self.schema = message_schema(version.columns)
        self.typed = bool(version.columns)
        self.dropped = frozenset(version.dropped)
        self._body_columns = [name for name in self.schema.names if name != "partition"]
        wanted = ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in list(self.schema)[1:])
        self.expected = wanted
        body = [field for field in self.schema if field.name not in ("partition", "timestamp", "headers")]
        self.body_schema = pa.schema([pa.field(f.name, plain_type(declared_type(f)), f.nullable) for f in body])
        """The topic's own columns, with the types by which values are checked. Some are stored as another type."""
        self.body_names = self.body_schema.names
        self._checked_body = {field.name: field.type for field in self.body_schema}
        self._stored_types = {field.name: field.type for field in self.schema}
        self._column_makers = [column_maker(type_, self._stored_types[n]) for n, type_ in self._checked_body.items()]
        self.row_width = len(self._column_makers) if self.typed else 1
        """How many values of a list belong to one row."""
        self._checked_types = self._stored_types | self._checked_body
        self.rows = RowConverter(self.body_schema, version.dropped)

    def to_table(self, data: object) -> Table:
        """Rows of any library as a pyarrow table, see :func:`as_table`. Raises InvalidRequest, SchemaMismatch."""
        try:
            return as_table(data, self._checked_body)
        except InexactValue as problem:
            raise self.mismatch(problem.located(problem.row)) from None

    def check(self, table: Table, key: object = None) -> tuple[Table, str | None]:
        """Returns the table with only the topic's columns, and the name of the key column (None: no keys).

        Raises SchemaMismatch, InvalidRequest.
        """
        if len(set(table.schema.names)) != len(table.schema.names):
            raise self.mismatch("the table has duplicate column names: " + ", ".join(table.schema.names))
        table = table.drop_columns([n for n in SYSTEM_COLUMNS if n in table.schema.names])
        table, key_column = self._typed_key(table, key) if self.typed else self._untyped_key(table, key)
        names = table.schema.names
        unknown = [n for n in names if n not in self._body_columns]
        if unknown:
            raise self.mismatch(no_such_columns(unknown, self.dropped, self._body_columns))
        for field in self.schema:
            if field.name in ("partition", "timestamp"):
                continue
            if field.name not in names:
                if not field.nullable:
                    raise self.mismatch(f"column {field.name} is missing")
            elif not field.nullable and table.column(field.name).null_count:
                row = first_null(table.column(field.name))
                raise self.mismatch(f"column {field.name}, row {row}: it may not be null")
        if key_column is not None:
            canonical_bytes(pa.nulls(0, table.schema.field(key_column).type))  # raises if it cannot be a key
        converted = self._cast(table, key_column)
        if "headers" in names and has_reserved_header(converted.column("headers")):
            raise InvalidRequest(
                f"a row has the header {HEADER!r}, which is reserved for large values. If the table was read with "
                'large_values="lazy", read it with large_values="eager"'
            )
        return converted, key_column

    def check_types(self, schema: pa.Schema, names: Iterable[str], key: str | None) -> None:
        """Whether any value of these columns of a table, for which :meth:`check` takes an empty one, may fit.

        Raises SchemaMismatch.
        """
        for name in names:
            source = schema.field(name).type
            if name in SYSTEM_COLUMNS or (not self.typed and name in ("key", key)):
                continue  # ``check`` has looked at the type of a key
            if name == "timestamp" and (pa.types.is_integer(source) or pa.types.is_timestamp(source)):
                continue
            target = self._checked_types[name]
            if not may_fit(source, target):
                raise self.mismatch(f"column {name}: {type_does_not_fit(source, target)}")

    def check_sizes(self, table: Table, limit: int) -> None:
        """Raises MessageTooLarge if a single value is over the limit, before anything is sent."""
        for field in table.schema:
            if pa.types.is_binary(field.type) or pa.types.is_string(field.type):
                longest = pc.max(pc.binary_length(table.column(field.name))).as_py()
                if longest is not None and longest > limit:
                    raise message_too_large(longest, limit)

    def _cast(self, table: Table, key_column: str | None) -> Table:
        """Casts the whole table at once, so that nothing is sent if a part of it does not fit."""
        columns = []
        for name in table.schema.names:
            column = table.column(name)
            if name != key_column or self.typed:
                try:
                    column = message_times(column) if name == "timestamp" else self._exact_column(column, name)
                except InexactValue as problem:
                    raise self.mismatch(f"column {name}, row {problem.row}: {problem.reason}") from None
            columns.append(column)
        return type(table).from_arrays(columns, names=table.schema.names)

    def _exact_column(self, column: pa.Array | pa.ChunkedArray, name: str) -> pa.Array | pa.ChunkedArray:
        """The column as it is stored. Raises InexactValue."""
        return exact_cast(exact_cast(column, self._checked_types[name]), self._stored_types[name])

    def _untyped_key(self, table: Table, key: object) -> tuple[Table, str | None]:
        names = table.schema.names
        if key is None:
            return table, "key" if "key" in names else None
        if isinstance(key, str):
            if key not in names:
                raise self._no_column(key, names)
            if key == "key":
                return table, key
            if "key" in names:
                raise InvalidRequest(f"the table has a column named key; {key!r} cannot be the key as well")
            return table.rename_columns(["key" if n == key else n for n in names]), "key"
        if not isinstance(key, (pa.Array, pa.ChunkedArray)):
            raise InvalidRequest(f"key must be a column's name or an Arrow array, not {type(key).__name__}")
        if len(key) != table.num_rows:
            raise InvalidRequest(f"the key has {len(key)} values, the table {table.num_rows} rows")
        if "key" in names:
            raise InvalidRequest("the table has a column named key; do not pass another key")
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        return table.append_column("key", key), "key"

    def _typed_key(self, table: Table, key: object) -> tuple[Table, str | None]:
        topic_key = self.topic.spec.key
        if key is not None and not isinstance(key, str):
            raise InvalidRequest("on a topic with a schema, key must be the name of one of its columns")
        if topic_key is not None and key is not None and key != topic_key:
            raise InvalidRequest(f"the key of {self.topic.name} is its column {topic_key!r}, not {key!r}")
        key_column = topic_key or key
        if key_column is not None and key_column not in table.schema.names:
            raise self._no_column(key_column, table.schema.names)
        return table, key_column

    def _no_column(self, key: str, names: list[str]) -> InvalidRequest:
        return InvalidRequest(f"the table has no column {key!r} for the key; it has: " + ", ".join(names))

    def mismatch(self, what: str) -> SchemaMismatch:
        """The error for a value that does not fit. Its message has no list of all columns: a topic may have 400."""
        return SchemaMismatch(f"{self.topic.name}: {what}", expected=self.expected, topic=self.topic.name)

    def columns_of(self, values: Sequence[object]) -> list[pa.Array]:
        """The topic's own columns, as they are stored, of rows that :attr:`rows` has converted.

        ``values`` are those of the rows, one row after the other.
        """
        return [make(values[number :: self.row_width]) for number, make in enumerate(self._column_makers)]

    def keys_of(self, values: Sequence[object]) -> Sequence[bytes | None]:
        """The canonical bytes of the keys of rows, whose values are as in :meth:`columns_of`; empty without a key."""
        if self.topic.spec.key is None:
            return ()
        number = self.body_names.index(self.topic.spec.key)
        type_ = self._stored_types[self.topic.spec.key]
        return key_bytes(values[number :: self.row_width], type_, self._column_makers[number])

    def encode(
        self, part: pa.RecordBatch, key_column: str | None, now: int, keyless: KeylessPartitioner
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]]:
        """Returns the wire batch of a part of a checked table, and the partitions of its rows."""
        keys = canonical_bytes(part.column(key_column)) if key_column is not None else None
        row_partitions = partitions(keys, part.num_rows, self.topic.spec.ring, keyless.next())
        # Arrow makes an object of each field and name whenever it is asked for them, which cost milliseconds a batch.
        given = dict(zip(part.schema.names, part.columns, strict=True))
        columns = []
        for name, type_ in self._stored_types.items():
            if name == "partition":
                columns.append(array_of(row_partitions, pa.int32()))
            elif name == key_column and not self.typed:
                columns.append(keys)
            elif name in given:
                column = given[name]
                if name == "timestamp" and column.null_count:
                    column = column.fill_null(pa.scalar(now, TIMESTAMP))
                columns.append(column)
            elif name == "timestamp":
                columns.append(pa.repeat(pa.scalar(now, TIMESTAMP), part.num_rows))
            else:
                columns.append(pa.nulls(part.num_rows, type_))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), row_partitions


def message_times(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The times of messages, from times (without a zone: in UTC) or whole microseconds. Raises InexactValue."""
    if pa.types.is_integer(column.type):
        column = exact_cast(column, pa.int64()).cast(TIMESTAMP)
    if pa.types.is_timestamp(column.type) and column.type.tz is None:
        return exact_cast(column, pa.timestamp("us")).cast(TIMESTAMP)
    return exact_cast(column, TIMESTAMP)


def first_null(column: pa.Array | pa.ChunkedArray) -> int:
    """The first row that is null."""
    return int(pc.index(column.is_null(), True).as_py())


def split_rows(table: Table, target_bytes: int) -> Iterator[pa.RecordBatch]:
    """Splits the table into batches of about ``target_bytes``. Copies only if its chunks are far smaller."""
    rows = table.num_rows
    if rows == 0:
        return
    # Batches of the same size, because a small last one would cost as much as a whole batch.
    per_batch = -(-rows // max(1, min(rows, round(table.nbytes / target_bytes))))
    if isinstance(table, pa.RecordBatch):
        for at in range(0, rows, per_batch):
            yield table.slice(at, per_batch)
        return
    parts = table.to_batches(max_chunksize=per_batch)
    if len(parts) <= 2 * (rows // per_batch + 1):
        yield from parts
        return
    for at in range(0, rows, per_batch):
        yield from table.slice(at, per_batch).combine_chunks().to_batches()


def split_to_limit(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """The batch in parts of at most ``limit`` bytes. Raises MessageTooLarge when one row has more."""
    if batch.nbytes <= limit:
        yield batch
    elif batch.num_rows == 1:
        raise message_too_large(batch.nbytes, limit)
    else:
        half = batch.num_rows // 2
        yield from split_to_limit(batch.slice(0, half), limit)
        yield from split_to_limit(batch.slice(half), limit)


def message_too_large(size: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"a message of {size} bytes is over the limit of {limit}. On a topic without a schema, send() uploads large "
        "values; otherwise write large objects to the filer and send names",
        limit=limit,
        size=size,
    )
