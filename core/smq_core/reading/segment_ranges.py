"""A range of the offsets of one segment: the unit in which reads are planned."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The messages ``start .. stop - 1`` of a segment."""

    segment: str
    start: int
    stop: int

    @property
    def count(self) -> int:
        """How many messages these are."""
        return max(0, self.stop - self.start)
