"""What a broker accepts of the network, and what it counts for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from smq_core.errors import SchemaMismatch
from smq_core.model.entities import Topic
from smq_storage.chunks.parquet_codec import chunk_schema, message_schema

# Memory of one entry besides its rows: Python and Arrow objects, measured with blocks of 64 batches.
ENTRY_OVERHEAD_BYTES = 512

# Small batches are sent together up to this many bytes.
MAX_MESSAGE_BYTES = 1024 * 1024


def size_of_names(large_values: Sequence[str]) -> int:
    """Memory of the names of an entry's large values, in bytes."""
    return sum(map(len, large_values))


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSchemas:
    """A topic's Arrow schemas."""

    message: pa.Schema
    chunk: pa.Schema
    empty: pa.RecordBatch
    required: tuple[int, ...]
    key: str = "key"
    """The key column."""
    takes_small_batches: bool = True
    """Whether the topic has no schema."""

    @classmethod
    def of(cls, topic: Topic) -> WireSchemas:
        message = message_schema(topic.spec.schema)
        return cls(
            message=message,
            chunk=chunk_schema(topic.spec.schema),
            empty=pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in message], schema=message),
            required=tuple(number for number, field in enumerate(message) if not field.nullable),
            key=topic.spec.key or "key",
            takes_small_batches=message.equals(message_schema()),
        )

    def check_stream(self, schema: pa.Schema) -> bool:
        """True if this stream has exactly the topic's schema, False if only nullability differs.

        Raises SchemaMismatch if columns or types differ.
        """
        if schema.equals(self.message):
            return True
        try:
            if schema.names == self.message.names and schema.types == self.message.types:
                return False
            given = _describe_schema(schema)
        except UnicodeDecodeError:  # Arrow decodes a name when somebody reads it
            given = "one whose name is no UTF-8"
        expected = _describe_schema(self.message)
        raise SchemaMismatch(f"the stream has the columns ({given}), expected ({expected})", expected=expected)

    def check(self, batch: pa.RecordBatch, same_schema: bool) -> pa.RecordBatch:
        """The batch with the topic's schema. Raises SchemaMismatch.

        It is validated in full (about 2 µs for 1000 rows), because invalid offsets would crash the process when the
        batch is written.
        """
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f"the batch is damaged: {error}", expected=_describe_schema(self.message)) from None
        for number in self.required:
            if nulls := batch.column(number).null_count:
                raise SchemaMismatch(
                    f"column {self.message.field(number).name!r} has {nulls} nulls, but is not nullable",
                    expected=_describe_schema(self.message),
                )
        if not same_schema:
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.message)
        return batch

    def check_small_batch(self) -> None:
        """Raises SchemaMismatch if the topic takes no small batches."""
        if not self.takes_small_batches:
            raise SchemaMismatch(
                "a small batch has keys and values, but the topic has a schema: send an Arrow batch",
                expected=_describe_schema(self.message),
            )


def _describe_schema(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema)
