"""The positions of one member of a group: what it was assigned, has returned to its program, and has committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class MemberPositions:
    """Positions are next offsets by segment. Not safe from threads."""

    def __init__(self) -> None:
        self._assigned: dict[str, int] = {}
        """The segments of the last assignment, with the committed positions that came with it."""
        self._uncommitted: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        """What this member has committed. A heartbeat may bring an assignment from before that."""
        self._went_back: set[str] = set()
        """Segments in which the program went back by ``seek`` since they were assigned."""
        self._processing: str | None = None
        """The segment of the batch that the program works on."""

    @property
    def assigned(self) -> Mapping[str, int]:
        return self._assigned

    @property
    def uncommitted(self) -> dict[str, int]:
        """A copy."""
        return dict(self._uncommitted)

    @property
    def is_processing(self) -> bool:
        """Whether the program works on a batch that is not committed."""
        return self._processing is not None

    # ---- what the program does

    def batch_returned(self, segment: str, end: int) -> None:
        self._uncommitted[segment] = end
        self._processing = segment

    def batch_finished(self) -> None:
        self._processing = None

    def sought(self, segment: str) -> None:
        """The program goes on, or back, to a position of its own in this segment."""
        self._uncommitted.pop(segment, None)
        self._went_back.add(segment)

    def commit(self, wanted: Mapping[str, int], committed: Mapping[str, int]) -> None:
        """The program wanted to commit some positions, and these of them were committed."""
        for segment, offset in committed.items():
            self._committed[segment] = max(self._committed.get(segment, 0), offset)
        for segment, offset in wanted.items():
            if self._uncommitted.get(segment, -1) <= offset:
                self._uncommitted.pop(segment, None)
        if self._processing not in self._uncommitted:
            self._processing = None

    def behind_commit(self, segment: str, position: int) -> int | None:
        """Where to go on if the segment came back at an older position than this member has committed."""
        upto = self._committed.get(segment, 0)
        return upto if position < upto and segment not in self._went_back else None

    # ---- assignments

    def revoked_by(self, positions: Mapping[str, int]) -> Iterator[str]:
        """The segments of the last assignment that these positions do not have."""
        return (segment for segment in self._assigned if segment not in positions)

    def start(self, segment: str, position: int) -> int:
        """Where to begin to read a segment that was assigned at this position."""
        return max(position, self._committed.get(segment, 0))

    def was_read_by_another(self, segment: str, position: int, own: int) -> bool:
        """Whether ``position`` shows that another member had the segment in between, and read further than ``own``.

        What this member knows itself shows nothing: it may have gone back since.
        """
        known = max(self._assigned.get(segment, 0), self._committed.get(segment, 0))
        return position > max(own, known)

    def assign(self, positions: Mapping[str, int]) -> None:
        self._went_back &= positions.keys()
        self._assigned = dict(positions)

    def keeps_revoked(self, positions: Mapping[str, int], *, commits_by_itself: bool) -> bool:
        """Whether a segment that is not among these has a position that is still to be committed.

        A program that commits itself decides what it commits, so only the batch that it works on counts.
        """
        if commits_by_itself:
            return self._processing not in positions and self._processing in self._uncommitted
        return any(segment not in positions for segment in self._uncommitted)

    def has_reached(self, segment: str, end: int) -> bool:
        """Whether the segment's end was returned, and is committed or will be."""
        return self._uncommitted.get(segment) == end or self._committed.get(segment, -1) >= end
