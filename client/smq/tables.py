"""A user's tables as wire batches: the columns that the topic wants, in their order and types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from smq.keys import Keyless, canonical, partitions
from smq_core.errors import InvalidRequest, MessageTooLarge, SchemaMismatch
from smq_core.model import Topic
from smq_storage.chunks import message_schema
from smq_storage.schemas import TIMESTAMP

IGNORED = ("partition", "appended")
"""Columns of what consumers get that a producer fills anew: so a table that was read can be written as it is."""

Table: TypeAlias = pa.Table | pa.RecordBatch


class Shaper:
    """Shapes tables for one topic."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.schema = message_schema(topic.spec.schema)
        self.typed = bool(topic.spec.schema)
        self._body = [name for name in self.schema.names if name != "partition"]
        wanted = ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in list(self.schema)[1:])
        self.expected = wanted

    def check(self, table: Table, key: object = None) -> tuple[Table, str | None]:
        """The table with only columns of the topic, and the name of the column to hash (None: no keys).

        Raises SchemaMismatch, InvalidRequest.
        """
        if not isinstance(table, (pa.Table, pa.RecordBatch)):
            raise InvalidRequest(f"write takes a pyarrow Table or RecordBatch, not {type(table).__name__}")
        if len(set(table.schema.names)) != len(table.schema.names):
            raise self._mismatch("column names occur twice: " + ", ".join(table.schema.names))
        table = table.drop_columns([n for n in IGNORED if n in table.schema.names])
        table, hashed = self._typed_key(table, key) if self.typed else self._raw_key(table, key)
        names = table.schema.names
        unknown = [n for n in names if n not in self._body]
        if unknown:
            raise self._mismatch(f"the topic has no column {', '.join(unknown)}")
        for field in self.schema:
            if field.name in ("partition", "timestamp"):
                continue
            if field.name not in names:
                if not field.nullable:
                    raise self._mismatch(f"column {field.name} is missing")
            elif not field.nullable and table.column(field.name).null_count:
                raise self._mismatch(f"column {field.name} may not have nulls")
        if hashed is not None:
            canonical(pa.nulls(0, table.schema.field(hashed).type))  # raises when it cannot be a key
        return self._cast(table, hashed), hashed

    def check_sizes(self, table: Table, limit: int) -> None:
        """Raises MessageTooLarge when a row's own bytes are beyond the limit, before anything was sent."""
        for field in table.schema:
            if pa.types.is_binary(field.type) or pa.types.is_string(field.type):
                longest = pc.max(pc.binary_length(table.column(field.name))).as_py()
                if longest is not None and longest > limit:
                    raise too_large(longest, limit)

    def _cast(self, table: Table, hashed: str | None) -> Table:
        """All at once, so that nothing of a table is sent when a part of it does not fit."""
        columns = []
        for name in table.schema.names:
            column, wanted = table.column(name), self.schema.field(name).type
            raw_key = name == hashed and not self.typed
            if column.type == wanted or raw_key:
                columns.append(column)
                continue
            try:
                if name == "timestamp" and pa.types.is_integer(column.type):
                    column = column.cast(pa.int64())
                columns.append(column.cast(wanted))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                raise self._mismatch(f"column {name} is {column.type}: {error}") from None
        return type(table).from_arrays(columns, names=table.schema.names)

    def _raw_key(self, table: Table, key: object) -> tuple[Table, str | None]:
        names = table.schema.names
        if key is None:
            return table, "key" if "key" in names else None
        if isinstance(key, str):
            if key not in names:
                raise self._no_column(key, names)
            if key == "key":
                return table, key
            if "key" in names:
                raise InvalidRequest(f"the table has a column key already: {key!r} cannot be the key as well")
            return table.rename_columns(["key" if n == key else n for n in names]), "key"
        if not isinstance(key, (pa.Array, pa.ChunkedArray)):
            raise InvalidRequest(f"key is a column's name or an Arrow array, not {type(key).__name__}")
        if len(key) != table.num_rows:
            raise InvalidRequest(f"the key has {len(key)} values, the table {table.num_rows} rows")
        if "key" in names:
            raise InvalidRequest("the table has a column key already: do not give another one")
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        return table.append_column("key", key), "key"

    def _typed_key(self, table: Table, key: object) -> tuple[Table, str | None]:
        own = self.topic.spec.key
        if key is not None and not isinstance(key, str):
            raise InvalidRequest("on a topic with a schema, key is the name of one of its columns")
        if own is not None and key is not None and key != own:
            raise InvalidRequest(f"the key of {self.topic.name} is its column {own!r}, not {key!r}")
        hashed = own or key
        if hashed is not None and hashed not in table.schema.names:
            raise self._no_column(hashed, table.schema.names)
        return table, hashed

    def _no_column(self, key: str, names: list[str]) -> InvalidRequest:
        return InvalidRequest(f"the table has no column {key!r} for the key; it has: " + ", ".join(names))

    def _mismatch(self, what: str) -> SchemaMismatch:
        return SchemaMismatch(
            f"{what}; {self.topic.name} expects: {self.expected}", expected=self.expected, topic=self.topic.name
        )

    def wire(
        self, part: pa.RecordBatch, hashed: str | None, now: int, keyless: Keyless
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]]:
        """A wire batch from a part of a checked table, and the partitions of its rows."""
        keys = canonical(part.column(hashed)) if hashed is not None else None
        places = partitions(keys, part.num_rows, self.topic.spec.partitions, keyless.next())
        columns = []
        for field in self.schema:
            if field.name == "partition":
                columns.append(pa.array(places))
            elif field.name == hashed and not self.typed:
                columns.append(keys)
            elif field.name in part.schema.names:
                column = part.column(field.name)
                if field.name == "timestamp" and column.null_count:
                    column = column.fill_null(pa.scalar(now, TIMESTAMP))
                columns.append(column)
            elif field.name == "timestamp":
                columns.append(pa.repeat(pa.scalar(now, TIMESTAMP), part.num_rows))
            else:
                columns.append(pa.nulls(part.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), places


def cut_rows(table: Table, target_bytes: int) -> Iterator[pa.RecordBatch]:
    """The table as batches of about ``target_bytes``, without copying unless its chunks are far smaller."""
    rows = table.num_rows
    if rows == 0:
        return
    # Of the same size: a small rest would cost as much as a whole batch.
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


def within_limit(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """The batch in parts of at most ``limit`` bytes. Raises MessageTooLarge when one row has more."""
    if batch.nbytes <= limit:
        yield batch
    elif batch.num_rows == 1:
        raise too_large(batch.nbytes, limit)
    else:
        half = batch.num_rows // 2
        yield from within_limit(batch.slice(0, half), limit)
        yield from within_limit(batch.slice(half), limit)


def too_large(size: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"a message of {size} bytes is over the limit of {limit}: write large objects to the filer, send their names",
        limit=limit,
        size=size,
    )
