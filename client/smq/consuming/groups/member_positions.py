"""The positions of one member of a group: what it was assigned, has returned to its program, and has committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from smq_core.errors import InvalidRequest


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
        self._before_batch: int | None = None
        """What was to be committed of that segment before that batch."""
        self._returned: dict[str, int] = {}
        """Up to where messages were returned, also before the program went back."""
        self._returned_before_reset: dict[str, int] = {}
        self.epoch: str | None = None
        """The epoch of the assignments; see :data:`OnAssignment`. None before the first one."""

    @property
    def assigned(self) -> Mapping[str, int]:
        return self._assigned

    @property
    def uncommitted(self) -> dict[str, int]:
        """A copy."""
        return dict(self._uncommitted)

    @property
    def finished(self) -> dict[str, int]:
        """The same without the batch that the program works on. A copy."""
        found = dict(self._uncommitted)
        if self._processing is not None and self._before_batch is None:
            found.pop(self._processing, None)
        elif self._processing in found and self._before_batch is not None:
            found[self._processing] = self._before_batch
        return found

    @property
    def is_processing(self) -> bool:
        """Whether the program works on a batch that is not committed."""
        return self._processing is not None

    # ---- what the program does

    def batch_returned(self, segment: str, end: int) -> None:
        self._processing, self._before_batch = segment, self._uncommitted.get(segment)
        self._uncommitted[segment] = end
        self._returned[segment] = max(end, self._returned.get(segment, 0))

    def batch_finished(self) -> None:
        self._processing = None

    def sought(self, segment: str) -> None:
        """The program goes on, or back, to a position that it chose in this segment."""
        self._uncommitted.pop(segment, None)
        self._went_back.add(segment)

    def segment_ended(self, segment: str, end: int) -> bool:
        """Every message of the segment was returned. True if its end is still to be committed."""
        if max(self._assigned.get(segment, 0), self._committed.get(segment, 0)) >= end:
            return False
        self._uncommitted[segment] = end
        return True

    def committable(self, positions: Mapping[str, int], current: Callable[[str], int]) -> dict[str, int]:
        """The positions that the program wants to commit, without those from before a reset.

        ``current`` is where a segment is read now. Raises InvalidRequest for a position beyond what was returned.
        """
        found = {}
        for segment, offset in positions.items():
            returned = max(self._returned.get(segment, 0), self._assigned.get(segment, 0), current(segment))
            if offset <= returned or not (segment in self._assigned or segment in self._returned):
                found[segment] = offset  # whether others have the segment is for the leader to say
            elif offset > self._returned_before_reset.get(segment, 0):
                raise InvalidRequest(
                    f"offset {offset} of {segment} cannot be committed, because this consumer has returned messages up "
                    f"to {returned}. A position is that of the next message: commit(batch.positions), or seek() first "
                    "to leave messages out"
                )
        return found

    def reset(self, epoch: str) -> None:
        """An administrator has set the group's positions, so those of before do not count any more."""
        for segment, offset in self._returned.items():
            self._returned_before_reset[segment] = max(offset, self._returned_before_reset.get(segment, 0))
        for positions in (self._assigned, self._uncommitted, self._committed, self._returned):
            positions.clear()
        self._went_back.clear()
        self._processing, self._before_batch, self.epoch = None, None, epoch

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
