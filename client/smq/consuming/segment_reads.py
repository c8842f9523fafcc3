"""The segments that a consumer reads: how far it has read each, which it may read now, and what of them was lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from smq.consuming.consumer_losses import ConsumerLosses
from smq.consuming.consumer_options import Start
from smq.consuming.fetching.fetch_plan import FetchPlan
from smq.consuming.fetching.open_fetchers import OpenFetchers
from smq.consuming.reader_losses import loss_for_reader
from smq.consuming.segment_choice import SegmentChoice
from smq.consuming.start_positions import seek_to_start
from smq.transport.topic_view import SealedHistory, TopicView
from smq_core.model.entities import Layout, SealedSegment
from smq_core.model.interval_set import EMPTY, IntervalSet
from smq_core.reading.segment_dag import ReadProgress, SegmentNode, build_nodes


class HistoryChange(NamedTuple):
    """What is new in a topic's history. ``removed``: segments that retention has removed."""

    removed: list[str]
    has_new_losses: bool


class SegmentReads:
    """Not safe from threads: the caller holds the consumer's condition.

    In a group the leader decides what is read now, and knows what was removed before it was read.
    """

    def __init__(
        self, *, view: TopicView, choice: SegmentChoice, fetchers: OpenFetchers, losses: ConsumerLosses, in_group: bool
    ) -> None:
        self._view = view
        self._choice = choice
        self._losses = losses
        self._in_group = in_group
        self._ends: Mapping[str, int] = {}
        """The ends of the last segments that retention has removed."""
        self._start_time_us = 0
        self._read_before_start: set[str] = set()
        """Segments that count as read because of the start position; their losses are not reported."""
        self.fetchers = fetchers
        self.progress = ReadProgress()
        self.sealed: dict[str, SealedSegment] = {}
        self.removed: IntervalSet = EMPTY
        """The numbers of the segments that retention has removed."""
        self.closed = False
        """After that, no segment is opened any more."""

    def position(self, segment: str) -> int:
        return self.progress.positions.get(segment, 0)

    # ---- the history of the topic

    def update(self, history: SealedHistory, layout: Layout) -> HistoryChange:
        """Takes over a newer history."""
        nodes = self._choice.among(build_nodes(history.sealed.values(), layout))
        self._ends = history.ends
        has_new_losses = _lost(self.sealed) != _lost(history.sealed)
        self.sealed, self.removed = dict(history.sealed), history.removed
        removed = [segment for segment in self.progress.nodes if segment not in nodes]
        for segment in removed:
            self._remove(segment)
        self.progress.update(nodes)
        self.collect_losses()
        return HistoryChange(removed, has_new_losses)

    def _remove(self, segment: str) -> None:
        """Handles a segment that retention removed; what this reader had not read of it is lost.

        For a group, the leader has the unread ranges. Only this member has what it read beyond the end.
        """
        end = self._ends.get(segment)
        if self._in_group:
            if end is not None:
                self.progress.ended(segment, end)
            del self.progress.nodes[segment]
        else:
            self.progress.removed(segment, end)
        if segment in self.fetchers:
            self.fetchers.stop(segment)
        self.fetchers.paused.discard(segment)

    def collect_losses(self) -> None:
        """Records the losses that the reader's progress has shown."""
        for segment, loss in self.progress.losses:
            sealed = self.sealed.get(segment)
            recorded = loss_for_reader(loss.stop, sealed.lost) if sealed is not None else None
            self._losses.record(segment, recorded if recorded is not None else loss)
        self.progress.losses.clear()

    # ---- where to read

    def start_at(self, start: Start) -> None:
        """Sets the positions of a reader without a group. Raises Unavailable."""
        self._start_time_us = seek_to_start(self._view, self.progress, start, self.sealed.values(), self._ends)

    def ignore_losses_before(self, start: Start) -> None:
        """Leaves out the losses of segments that count as read because of the start position."""
        if start != "earliest":
            # A reader that comes back at a segment's end may have ended before it learned what the segment had lost.
            named = start if isinstance(start, Mapping) else ()
            self._read_before_start = {s for s in self.sealed if self.progress.is_read(s) and s not in named}

    def seek(self, positions: Mapping[str, int]) -> None:
        """Goes on at these positions, each of a known segment. ``open_readable`` then opens what may be read."""
        self._start_time_us = 0
        self.progress.seek(positions)
        self._read_before_start |= {s for s in self.sealed if self.progress.is_read(s)}
        readable = self.progress.readable()
        for segment in [s for s in self.fetchers if s in positions or s not in readable]:
            self.fetchers.stop(segment)
        self.fetchers.paused &= set(readable)

    def forget_positions(self) -> None:
        """Nothing counts as read any more."""
        self.progress.positions.clear()
        self.progress.update({})

    # ---- opening and ending

    def open_readable(self) -> None:
        """Starts reading the segments that may be read now by the order of segments. Not for groups."""
        for sealed in self.sealed.values():
            if not self._choice.has(sealed.name):
                continue
            # A segment that was lost completely has nothing to fetch; one that was read may have lost more since.
            loss = loss_for_reader(0, sealed.lost)
            passed = sealed.name not in self._read_before_start and sealed.name not in self.fetchers
            if loss is not None and passed and self.progress.is_read(sealed.name):
                self._losses.record(sealed.name, loss)
        for segment in self.progress.readable():
            if segment not in self.fetchers and not self.closed:
                self.open(segment)

    def open(self, segment: str) -> None:
        """Starts reading a segment that is not open, where the reader is in it."""
        plan = FetchPlan(segment, self.position(segment), self.sealed.get(segment), self._start_time_us)
        self.fetchers.start(plan)

    def reopen_at(self, segment: str, position: int) -> None:
        """Reads a segment from this position on, whether it is open or not."""
        if segment in self.fetchers:
            self.fetchers.stop(segment)
        self.progress.positions[segment] = position
        self.open(segment)

    def end(self, segment: str, end: int) -> None:
        """The segment was read to its end."""
        if segment not in self.progress.nodes:
            self.progress.update(self._nodes())
        if segment in self.progress.nodes:
            self.progress.ended(segment, end)
        self.collect_losses()
        self.progress.advance(segment, end)
        self.fetchers.stop(segment)

    def _nodes(self) -> dict[str, SegmentNode]:
        """The DAG, as far as this consumer reads it."""
        return self._choice.among(build_nodes(self.sealed.values(), self._view.snapshot.layout))


def _lost(sealed: Mapping[str, SealedSegment]) -> dict[str, object]:
    return {name: it.lost for name, it in sealed.items() if it.lost}
