"""What a producer's machine has to know of a topic's rows and schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from smq_core.model.entities import Segment
from smq_core.producing.routes import Route
from smq_core.producing.send_queue import QueuedSubBatch


class TopicRows(Protocol):
    """What the machine has to know of rows and schemas. No method has an effect."""

    def split(self, sub_batch: QueuedSubBatch, route: Route) -> Sequence[tuple[Segment, QueuedSubBatch]]:
        """The rows by segment, in their order."""

    def reshape(self, sub_batch: QueuedSubBatch, segment: Segment) -> QueuedSubBatch:
        """The rows with the columns of the segment, or as they are if they have to wait for its successors.

        Raises SchemaMismatch if a value has no column there. Any other SmqError fails these rows only.
        """

    def has_schemas(self, segments: Sequence[Segment]) -> bool:
        """Whether the columns of all these segments are known."""
