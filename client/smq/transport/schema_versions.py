"""The versions of a topic's schema, as one snapshot of the topic has them."""

from __future__ import annotations

import pyarrow as pa

from smq.transport.topic_view import TopicSnapshot
from smq_core.model.entities import Segment, TopicSchema
from smq_core.model.schema_evolution import schema_history
from smq_storage.chunks.schemas import message_schema


class SchemaVersions:
    """Immutable. A topic without a schema has version 0 without columns."""

    def __init__(self, snapshot: TopicSnapshot) -> None:
        history = schema_history(snapshot.layout, snapshot.topic.spec.schema)
        self.newest: TopicSchema = history[-1]
        self._schemas = {schema.version: schema for schema in history}
        self._message_schemas: dict[int, pa.Schema] = {}

    def __contains__(self, version: int) -> bool:
        """Whether the snapshot has this version. A broker may name segments of a newer one."""
        return version in self._schemas

    def has_all(self, segments: tuple[Segment, ...]) -> bool:
        """Whether the snapshot has the versions of all these segments."""
        return all(segment.schema_version in self for segment in segments)

    def schema(self, version: int) -> TopicSchema:
        """Raises KeyError."""
        return self._schemas[version]

    def message_schema(self, version: int) -> pa.Schema:
        """The schema of batches on the wire. Raises KeyError."""
        found = self._message_schemas.get(version)
        if found is None:
            found = self._message_schemas[version] = message_schema(self._schemas[version].columns)
        return found
