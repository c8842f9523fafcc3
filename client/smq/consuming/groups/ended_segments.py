"""Segments that a member has returned to their ends, which are not committed. Their successors wait for that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

# A program that commits in batches usually commits sooner.
WARN_AFTER_SECONDS = 5.0
# The pause between warnings doubles up to this, as for other things that a consumer waits for.
MAX_WARN_INTERVAL_SECONDS = 600.0


@dataclass(slots=True)
class EndedSegment:
    """Times are monotonic seconds."""

    end: int
    warn_at: float
    warn_interval: float = WARN_AFTER_SECONDS


class EndedSegments:
    """Not safe from threads."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._segments: dict[str, EndedSegment] = {}

    def add(self, segment: str, end: int, now: float) -> None:
        self._segments[segment] = EndedSegment(end, now + WARN_AFTER_SECONDS)

    def committed(self, positions: Mapping[str, int]) -> None:
        for segment, offset in positions.items():
            if segment in self._segments and offset >= self._segments[segment].end:
                del self._segments[segment]

    def keep(self, assigned: Collection[str]) -> None:
        """Others have the segments that are no longer assigned, or their ends are committed."""
        self._segments = {name: it for name, it in self._segments.items() if name in assigned}

    def read_again(self, segments: Collection[str]) -> None:
        """The program went back in these, or the group's positions were set."""
        self.keep(self._segments.keys() - set(segments))

    @property
    def ends(self) -> dict[str, int]:
        """The commits that are awaited. A copy."""
        return {name: it.end for name, it in self._segments.items()}

    def warnings(self, now: float) -> list[str]:
        """What to warn of now; each is repeated less and less often."""
        found = []
        for name, it in self._segments.items():
            if now < it.warn_at:
                continue
            it.warn_interval = min(2 * it.warn_interval, MAX_WARN_INTERVAL_SECONDS)
            it.warn_at = now + it.warn_interval
            found.append(
                f"group {self._group} waits for your commit of offset {it.end} of {name}: the segment has ended, and "
                "what follows it is read only after that. Call commit(), pass on_segment_end=, or let the consumer "
                'commit there with auto_commit="segment_end"'
            )
        return found
