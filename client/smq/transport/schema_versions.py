"""The versions of a topic's schema, as the snapshots of the topic have them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from smq.transport.topic_view import TopicSnapshot
from smq_core.model.entities import Segment, TopicSchema
from smq_core.model.schema_evolution import schema_history
from smq_storage.chunks.reshaping import Reshaping
from smq_storage.chunks.schemas import message_schema


class SchemaVersions:
    """Immutable. A topic without a schema has version 0 without columns.

    ``before`` has the versions of earlier snapshots: a snapshot lacks those of segments that have left the layout.
    """

    def __init__(self, snapshot: TopicSnapshot, before: SchemaVersions | None = None) -> None:
        history = schema_history(snapshot.layout, snapshot.topic.spec.schema)
        self.newest: TopicSchema = history[-1]
        known: dict[int, TopicSchema] = before._schemas if before is not None else {}
        self._schemas: dict[int, TopicSchema] = known | {schema.version: schema for schema in history}
        self._message_schemas: dict[int, pa.Schema] = {}
        self._reshapings: dict[tuple[int, int], Reshaping] = {}

    def __contains__(self, version: int) -> bool:
        """Whether the version is known. A broker may name segments of a newer one."""
        return version in self._schemas

    def has_all(self, segments: Sequence[Segment]) -> bool:
        """Whether the versions of all these segments are known."""
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

    def reshaping(self, old: int, new: int) -> Reshaping:
        """From batches of one version to batches of the other. Raises KeyError."""
        found = self._reshapings.get((old, new))
        if found is None:
            made = Reshaping(self.message_schema(old), self.message_schema(new))
            found = self._reshapings[old, new] = made
        return found
