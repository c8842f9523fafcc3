"""What a producer's machine has to know of a topic's rows: which segment takes them, and with which columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from smq.producing.batching.partitioning import RoutingTable, SubBatch, partition_by_segment
from smq.producing.batching.sub_batch_versions import reshaped
from smq.transport.schema_versions import SchemaVersions
from smq.transport.topic_view import TopicSnapshot
from smq_core.model.entities import Segment
from smq_core.producing.routes import Route
from smq_core.producing.send_queue import QueuedSubBatch


class TopicRows:
    """For one producer, whose lock guards it; ``table`` needs none."""

    def __init__(self, topic: str, snapshot: TopicSnapshot) -> None:
        self._topic = topic
        self._versions = SchemaVersions(snapshot)
        self._last_table: tuple[Route, RoutingTable] | None = None

    def update(self, snapshot: TopicSnapshot) -> None:
        """The schemas of a newer snapshot, beside those before."""
        self._versions = SchemaVersions(snapshot, self._versions)

    def table(self, route: Route) -> RoutingTable:
        last = self._last_table
        if last is None or last[0] is not route:
            last = self._last_table = route, RoutingTable.of(route)
        return last[1]

    def message_schema(self, segment: Segment) -> pa.Schema:
        """The schema of the segment's batches on the wire. Raises KeyError if it is not known."""
        return self._versions.message_schema(segment.schema_version)

    # ---- see smq_core.producing.topic_rows.TopicRows

    def split(self, sub_batch: QueuedSubBatch, route: Route) -> list[tuple[Segment, SubBatch]]:
        assert isinstance(sub_batch, SubBatch)
        return partition_by_segment(sub_batch, self.table(route))

    def reshape(self, sub_batch: QueuedSubBatch, segment: Segment) -> SubBatch:
        assert isinstance(sub_batch, SubBatch)
        if sub_batch.large_value is not None and sub_batch.large_value.error is not None:
            raise sub_batch.large_value.error
        return reshaped(sub_batch, segment, self._versions, self._topic)

    def has_schemas(self, segments: Sequence[Segment]) -> bool:
        return self._versions.has_all(segments)
