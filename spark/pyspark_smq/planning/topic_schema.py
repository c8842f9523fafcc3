"""The newest schema of a topic, as the leader or the filer has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smq_core.model.schema_evolution import newest_schema
from smq_storage.chunks.schemas import chunk_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_smq.options import Connection


def newest_chunk_schema(connection: Connection) -> pa.Schema:
    """The columns that a message of the topic's newest schema has in a chunk.

    Raises InvalidRequest, UnknownTopic, Unavailable, StoreDenied.
    """
    with connection.connect() as client:
        snapshot = client._view(connection.topic).snapshot
        return chunk_schema(newest_schema(snapshot.layout, snapshot.topic.spec.schema).columns)
