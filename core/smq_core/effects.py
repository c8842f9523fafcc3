"""What a topic's leader wants done. Each effect says which of its methods takes the answer.

Whoever drives the leader carries them out in any order, and may lose any of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.model import Layout, Replica, SealedSegment, Segment
from smq_core.sealing import AskReplica, SealFromFiler


@dataclass(frozen=True, slots=True)
class ReadLayout:
    """Answer with ``layout_read``."""


@dataclass(frozen=True, slots=True)
class PutLayout:
    """Put on condition of ``etag`` (None: create only). Answer with ``layout_put`` or ``layout_lost``."""

    layout: Layout
    etag: str | None


@dataclass(frozen=True, slots=True)
class OpenReplica:
    """Tell this replica to open the segment. Answer with ``opened`` or ``open_failed``."""

    segment: Segment
    replica: Replica


@dataclass(frozen=True, slots=True)
class FlushAhead:
    """Let the primary write ahead what it holds: a seal comes. Answer with ``flushed``, also when it failed."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class AppendIndex:
    """Add these to the index of sealed segments. Answer with ``indexed`` or ``index_failed``."""

    entries: tuple[SealedSegment, ...]


Effect = ReadLayout | PutLayout | OpenReplica | FlushAhead | AskReplica | SealFromFiler | AppendIndex
