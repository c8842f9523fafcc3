"""What a topic's reconciler remembers of one segment, in one record that leaves memory with the segment.

Nothing in a record has to survive a restart: a new leader finds it again in the layout, from the brokers' reports, or
by repeating the requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from smq_core.model.entities import Micros
from smq_core.sealing.seal_coordinator import SealCoordinator


@dataclass(slots=True)
class ReplicaOpening:
    """The requests that one replica open the segment, and their outcome."""

    requested: bool = False
    done: bool = False
    refused: bool = False
    retry_at: Micros = 0


@dataclass(slots=True)
class SegmentRecord:
    """The progress of one segment from opening to sealing. Times are microseconds."""

    openings: dict[str, ReplicaOpening] = field(default_factory=dict)
    """By incarnation."""
    fully_opened: bool = False
    """Every replica of the layout has opened it."""
    watermark: int | None = None
    """The highest watermark that a replica reported."""
    sealing: SealCoordinator | None = None
    """The seal, once the layout names successors."""
    seal_started_at: Micros = 0
    sealed_at: Micros | None = None
    """When the reconciler first saw that it is sealed."""
    flushing_ahead: bool = False
    """Its primary is writing its tail to the filer before the seal begins."""
    indexed: bool = False
    """Its entry is in the index of sealed segments."""
    loss_to_accept: bool = False
    """An administrator has accepted its loss, and the layout does not record that yet."""

    def opening(self, incarnation: str) -> ReplicaOpening:
        """The opening at that replica; a new one if none was requested yet."""
        return self.openings.setdefault(incarnation, ReplicaOpening())

    def has_opened(self, incarnation: str) -> bool:
        """True if that incarnation reported that it hosts the segment."""
        opening = self.openings.get(incarnation)
        return opening is not None and opening.done
