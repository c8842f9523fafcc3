"""The effects that a topic's reconciler requests. Each names its answer, if it does not fail.

The caller carries them out in any order, and may lose any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from smq_core.model.entities import Layout, Replica, SealedSegment, Segment
from smq_core.model.partition_offsets import SealedPartitions
from smq_core.sealing.seal_coordinator import SealEffect


@dataclass(frozen=True, slots=True)
class ReadLayout:
    """Answered by LayoutRead."""


@dataclass(frozen=True, slots=True)
class PutLayout:
    """Replace the layout of that ``etag`` (None: create). Answered by LayoutWritten."""

    layout: Layout
    etag: str | None


@dataclass(frozen=True, slots=True)
class OpenReplica:
    """Request that this replica open the segment. Answered by ReplicaOpened."""

    segment: Segment
    replica: Replica


@dataclass(frozen=True, slots=True)
class FlushAhead:
    """Make the primary write its tail before the seal. Answered by TailFlushed."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class AppendIndex:
    """Append these to the index of sealed segments. Answered by IndexAppended.

    ``partitions`` has Kafka's offsets of each, by name; it is empty if the topic has none.
    """

    entries: tuple[SealedSegment, ...]
    partitions: Mapping[str, SealedPartitions] = field(default_factory=dict)


Effect = ReadLayout | PutLayout | OpenReplica | FlushAhead | SealEffect | AppendIndex
