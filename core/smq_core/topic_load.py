"""What load and age ask of one topic: its segments' loads, and the changes that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from smq_core.autoscale import Autoscaler, Change, HotPartition, Split, pressure
from smq_core.decide import Roll
from smq_core.load import SECOND, Counters, SegmentLoad
from smq_core.model import Layout, Phase, Segment, TopicSpec
from smq_core.placement import BrokerView
from smq_core.rebalance import Move, to_move

MOVE_EVERY = 15 * SECOND
SETTLE_AFTER_CHANGE = 10 * SECOND


@dataclass(slots=True)
class TopicLoad:
    """Fed by the brokers' reports. ``paused`` stops splits, merges and moves; rolls go on. Times are microseconds."""

    segments: dict[str, SegmentLoad] = field(default_factory=dict)
    totals: dict[str, Counters] = field(default_factory=dict)
    hot: dict[str, HotPartition] = field(default_factory=dict)
    paused: bool = False
    _scaler: Autoscaler = field(default_factory=Autoscaler)
    _moved_at: int = 0

    def observe(self, segment: str, counters: Counters, now: int) -> bool:
        """A primary's report. False when it is absurd, and ignored."""
        taken = self.segments.setdefault(segment, SegmentLoad()).observe(now, counters)
        if taken:
            self.totals[segment] = counters
        return taken

    def changes(
        self, spec: TopicSpec, layout: Layout, brokers: Mapping[str, BrokerView], now: int
    ) -> list[Change | Move | Roll]:
        """What to change now. A segment that is not healthy, or is being changed, is left alone."""
        names = {s.name for s in layout.segments}
        for known in (self.segments, self.totals):
            for name in [n for n in known if n not in names]:
                del known[name]
        healthy = [
            s
            for s in layout.segments
            if s.phase is Phase.OPEN
            and not s.successors
            and all(r.incarnation in brokers and brokers[r.incarnation].takes_segments for r in s.replicas)
        ]
        if not healthy:
            return []
        found: list[Change | Move | Roll] = []
        if not self.paused and len(healthy) == len(layout.segments):
            found += self._scaler.changes(spec, healthy, self.segments, now)
            self.hot = {c.segment: c for c in found if isinstance(c, HotPartition)}
            if not any(isinstance(c, Split) for c in found):
                found += self._move(spec, healthy, brokers, now)
        return found + self._rolls(spec, healthy, now)

    def _move(
        self, spec: TopicSpec, segments: list[Segment], brokers: Mapping[str, BrokerView], now: int
    ) -> list[Move]:
        settled = all(now - s.opened_at >= SETTLE_AFTER_CHANGE for s in segments)
        if not settled or now - self._moved_at < MOVE_EVERY:
            return []
        pressures = {name: pressure(load.fast, spec) for name, load in self.segments.items()}
        move = to_move(segments, pressures, brokers)
        if move is None:
            return []
        self._moved_at = now
        return [move]

    def _rolls(self, spec: TopicSpec, segments: list[Segment], now: int) -> list[Roll]:
        """Old or large segments are rolled, so that quiet topics expire and compact too; empty ones are not."""
        rolls = []
        for segment in segments:
            total = self.totals.get(segment.name)
            if total is None or not total.messages:
                continue
            if total.bytes >= spec.roll_bytes:
                rolls.append(Roll(segment.name, f"{total.bytes / 2**20:,.0f} MiB are in it"))
            elif now - segment.opened_at >= spec.roll_age:
                rolls.append(Roll(segment.name, f"it is {(now - segment.opened_at) // SECOND} s old"))
        return rolls
