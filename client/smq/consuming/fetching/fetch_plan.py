"""What one reader reads of its segment."""

from __future__ import annotations

from dataclasses import dataclass

from smq_core.model.entities import SealedSegment


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What to read. Messages appended before ``since`` (microseconds) are left out."""

    segment: str
    position: int
    sealed: SealedSegment | None = None
    since: int = 0
