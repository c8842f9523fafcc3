"""The effects that a topic's reconciler requests. Each names the methods of the reconciler that take the answer.

The caller carries them out in any order, and may lose any of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.model.entities import Layout, Replica, SealedSegment, Segment
from smq_core.sealing.seal_coordinator import RequestSeal, SealFromFiler


@dataclass(frozen=True, slots=True)
class ReadLayout:
    """Answer with ``layout_read``."""


@dataclass(frozen=True, slots=True)
class PutLayout:
    """Replace the layout of that ``etag`` (None: create). Answer with ``layout_put`` or ``layout_put_failed``."""

    layout: Layout
    etag: str | None


@dataclass(frozen=True, slots=True)
class OpenReplica:
    """Request that this replica open the segment. Answer with ``opened`` or ``open_failed``."""

    segment: Segment
    replica: Replica


@dataclass(frozen=True, slots=True)
class FlushAhead:
    """Make the primary write its tail before the seal. Answer with ``flushed``, also if it failed."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class AppendIndex:
    """Append these to the index of sealed segments. Answer with ``indexed`` or ``append_index_failed``."""

    entries: tuple[SealedSegment, ...]


Effect = ReadLayout | PutLayout | OpenReplica | FlushAhead | RequestSeal | SealFromFiler | AppendIndex
