"""What a topic's reconciler remembers of its segments: one record for each, which leaves memory with the segment.

Nothing in a record has to survive a restart: a new leader finds it again in the layout, from the brokers' reports, or
by repeating the requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout, Micros
from smq_core.sealing.seal_coordinator import SealBlocked, SealCoordinator


@dataclass(slots=True)
class ReplicaOpening:
    """The requests that one replica open the segment, and their outcome."""

    requested: bool = False
    done: bool = False
    refused: bool = False
    """The process will never serve the segment."""
    overloaded: int = 0
    """How many requests failed because its memory is full."""
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


@dataclass(slots=True)
class SegmentRecords:
    """The records of one topic by segment, in the order in which the segments became known."""

    _records: dict[str, SegmentRecord] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[str, SegmentRecord]]:
        return iter(self._records.items())

    def of(self, segment: str) -> SegmentRecord:
        """The record of that segment; a new one if it is not known yet."""
        return self._records.setdefault(segment, SegmentRecord())

    def known(self, segment: str) -> SegmentRecord | None:
        """The record of that segment, or None if it is not known yet."""
        return self._records.get(segment)

    def sealing(self, segment: str) -> SealCoordinator | None:
        """The seal of that segment, or None if it is not being sealed."""
        record = self._records.get(segment)
        return record.sealing if record is not None else None

    def outcome(self, segment: str) -> SealOutcome | None:
        """The seal outcome of that segment, or None if it is not known to be sealed."""
        sealing = self.sealing(segment)
        return sealing.outcome if sealing is not None else None

    def outcomes(self) -> dict[str, SealOutcome]:
        """The seal outcomes that are known, by segment."""
        sealings = ((name, record.sealing) for name, record in self)
        return {name: s.outcome for name, s in sealings if s is not None and s.outcome is not None}

    def blocked(self) -> dict[str, SealBlocked]:
        """The segments whose seal is blocked, and the replicas that block it."""
        sealings = ((name, record.sealing) for name, record in self)
        return {name: s.blocked for name, s in sealings if s is not None and s.blocked is not None}

    def watermarks(self) -> dict[str, int]:
        """Up to where messages are known to be acked, by segment."""
        return {name: record.watermark for name, record in self if record.watermark is not None}

    def has_opened(self, segment: str, incarnation: str) -> bool:
        """True if this incarnation reported that it hosts the segment."""
        record = self._records.get(segment)
        return record is not None and record.has_opened(incarnation)

    def prune(self, layout: Layout | None) -> None:
        """Forgets the segments that are not in the layout."""
        self._records = {name: it for name, it in self._records.items() if layout is not None and name in layout}
