"""Reads the segments that a group assigns to a member, from the positions that the group has committed."""

from __future__ import annotations

from collections.abc import Mapping

from smq.consuming.groups.member_positions import MemberPositions
from smq.consuming.groups.rebalance_events import RebalanceEvents
from smq.consuming.segment_reads import SegmentReads


class AssignedReads:
    """Not safe from threads: the caller holds the consumer's condition.

    ``commits_by_itself``: the program decides what it commits.
    """

    def __init__(
        self, reads: SegmentReads, positions: MemberPositions, events: RebalanceEvents, *, commits_by_itself: bool
    ) -> None:
        self._reads = reads
        self._positions = positions
        self._events = events
        self._commits_by_itself = commits_by_itself

    def assign(self, positions: Mapping[str, int]) -> bool:
        """Opens the segments that this member may read, and ends the others.

        True: the program still works on a revoked segment, or its position is still to be committed.
        """
        reads, member = self._reads, self._positions
        for segment in [s for s in reads.fetchers if s not in positions]:
            reads.fetchers.stop(segment)
            reads.fetchers.paused.discard(segment)
        self._events.revoked(member.revoked_by(positions))
        for segment, position in positions.items():
            if segment in reads.fetchers and member.was_read_by_another(segment, position, reads.position(segment)):
                reads.fetchers.stop(segment)
            if segment not in reads.fetchers and not reads.closed and not self._is_read_to_end(segment):
                reads.reopen_at(segment, member.start(segment, position))
        member.assign(positions)
        self._events.assigned(s for s in positions if s in reads.fetchers)
        if self._events.revocation_pending:
            return True
        return member.keeps_revoked(positions, commits_by_itself=self._commits_by_itself)

    def reset(self, epoch: str) -> None:
        """An administrator has set the group's positions: nothing of before counts."""
        reads, member = self._reads, self._positions
        for segment in reads.fetchers:
            reads.fetchers.stop(segment)
        reads.fetchers.paused.clear()
        reads.forget_positions()
        self._events.revoked(member.revoked_by({}))
        member.reset(epoch)

    def seek(self, positions: Mapping[str, int]) -> None:
        """Goes on at these positions, each of an assigned segment."""
        for segment, offset in positions.items():
            self._positions.sought(segment)
            self._reads.reopen_at(segment, offset)

    def skip_committed(self, segment: str) -> None:
        """Goes on at what was just committed, if the segment came back to this member at an older position."""
        upto = self._positions.behind_commit(segment, self._reads.position(segment))
        if segment in self._reads.fetchers and upto is not None:
            self._reads.reopen_at(segment, upto)

    def _is_read_to_end(self, segment: str) -> bool:
        """Whether the segment is assigned only because its end was not committed yet."""
        node = self._reads.progress.nodes.get(segment)
        return node is not None and node.end is not None and self._positions.has_reached(segment, node.end)
