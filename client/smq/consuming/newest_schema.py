"""Gives every batch the topic's newest columns, so that a program sees one schema for old and new messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from smq_core.model.entities import TopicSchema
from smq_core.model.schema_evolution import newest_schema
from smq_storage.chunks.reshaping import Reshaping, is_wider
from smq_storage.chunks.schemas import chunk_schema

if TYPE_CHECKING:
    from smq.transport.topic_view import TopicSnapshot


class NewestSchema:
    """Converts tables to the newest schema of the latest snapshot. For one thread at a time."""

    def __init__(self) -> None:
        self._snapshot: TopicSnapshot | None = None
        self._newest = TopicSchema(-1, ())
        self._columns: pa.Schema = pa.schema([])
        self._given: pa.Schema | None = None
        """The columns of the last table: those of the next one are nearly always the same."""
        self._reshaping: Reshaping | None = None
        """For such tables; None if they stay as they are."""

    def convert(self, table: pa.Table, snapshot: TopicSnapshot) -> pa.Table:
        """The table with nulls for columns that it lacks, with wider types, and without columns that were dropped.

        A table of a newer schema than the snapshot's stays as it is: the snapshot is about to follow.
        """
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            newest = newest_schema(snapshot.layout, snapshot.topic.spec.schema)
            if newest != self._newest:
                self._newest, self._columns, self._given = newest, chunk_schema(newest.columns), None
        given = table.schema
        if self._given is None or not given.equals(self._given):
            self._given = given
            self._reshaping = Reshaping(given, self._columns) if self._is_older(given) else None
        return table if self._reshaping is None else self._reshaping.widen(table)

    def _is_older(self, schema: pa.Schema) -> bool:
        return all(self._has(field) for field in schema) and all(
            field.nullable or field.name in schema.names for field in self._columns
        )

    def _has(self, field: pa.Field) -> bool:
        """Whether the newest schema has the column, perhaps wider, or has dropped it."""
        if field.name not in self._columns.names:
            return field.name in self._newest.dropped
        mine = self._columns.field(field.name)
        return (field.type == mine.type or is_wider(field.type, mine.type)) and (mine.nullable or not field.nullable)
