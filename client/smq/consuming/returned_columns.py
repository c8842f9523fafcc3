"""The columns of the batches that a consumer returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from smq.consuming.newest_schema import NewestSchema
from smq_core.model.entities import TopicSpec
from smq_storage.chunks.column_types import as_declared

if TYPE_CHECKING:
    from smq.transport.topic_view import TopicSnapshot


class ReturnedColumns:
    """Those of the ``newest`` version of the topic's schema, or of each batch's own. For one thread at a time."""

    def __init__(self, spec: TopicSpec, *, newest: bool) -> None:
        # A topic without a schema stays without, so its columns need no look: that would cost as much as the rest.
        self._is_fixed = not spec.schema
        self._newest = NewestSchema() if newest else None

    def convert(self, table: pa.Table, snapshot: TopicSnapshot) -> pa.Table:
        """The table with the types that the topic declares. Copies only columns that have to change."""
        if self._is_fixed:
            return table
        return as_declared(table if self._newest is None else self._newest.convert(table, snapshot))
