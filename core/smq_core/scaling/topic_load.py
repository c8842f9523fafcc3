"""The load of one topic's segments, and the changes that follow from load and age."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from smq_core.model.entities import SECOND, Layout, Micros, Phase, Segment, TopicSpec
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.scaling.autoscaler import Autoscaler, sustained_pressure
from smq_core.scaling.placement import BrokerView
from smq_core.scaling.rebalancing import load_by_broker, plan_moves
from smq_core.scaling.segment_load import MeasuredLoad, TrafficCounters, slow_window

MOVE_INTERVAL: Micros = 10 * SECOND
MOVE_CHECK_INTERVAL: Micros = SECOND
MOVE_COOLDOWN: Micros = 10 * SECOND
# At most this part (one in four) of a topic's segments moves at a time, so that most writers are not disturbed.
MOVE_SHARE = 4
MAX_MOVES = 32


@dataclass(slots=True)
class TopicLoad:
    """Collects the brokers' reports and computes changes from them.

    ``paused`` stops splits, merges and moves, but not rolls. Splits and merges that load calls for meanwhile are in
    ``withheld_changes``. They follow when the pause ends, if load still calls for them then.
    """

    segments: dict[str, MeasuredLoad] = field(default_factory=dict)
    totals: dict[str, TrafficCounters] = field(default_factory=dict)
    invalid_reports: dict[str, str] = field(default_factory=dict)
    """By segment, why its last report was invalid and therefore ignored."""
    paused: bool = False
    withheld_changes: tuple[SegmentChange, ...] = ()
    """Splits and merges that a pause prevents."""
    changed_at: Micros = 0
    """When a report last showed new messages."""
    _scaler: Autoscaler = field(default_factory=Autoscaler)
    _slow_window: Micros | None = None
    _counted_by_broker: Mapping[str, float] = field(default_factory=dict)
    _moved_at: Micros = 0
    _checked_at: Micros = -MOVE_CHECK_INTERVAL

    @property
    def hot_partitions(self) -> Mapping[str, int]:
        """The partitions that are above the threshold and cannot be split, by segment."""
        return self._scaler.hot_partitions

    def observe(self, segment: str, counters: TrafficCounters, now: Micros) -> bool:
        """Takes a primary's report. False, and ignored, if it is invalid (see ``invalid_reports``) or out of date."""
        load = self.segments.setdefault(segment, MeasuredLoad())
        why = load.validation_error(now, counters)
        if why is not None:
            self.invalid_reports[segment] = why
            return False
        self.invalid_reports.pop(segment, None)
        taken = load.observe(now, counters, self._slow_window)
        if taken and self.totals.get(segment) != counters:
            self.totals[segment], self.changed_at = counters, now
        return taken

    def count_by_broker(self, spec: TopicSpec, layout: Layout) -> Mapping[str, float]:
        """What each incarnation carries of this topic, in targets, as its share of ``BrokerView.load``.

        Moves subtract it from there, so it must be computed anew only together with the views.
        """
        pressures = {name: sustained_pressure(load, spec) for name, load in self.segments.items() if not load.is_idle}
        self._counted_by_broker = load_by_broker(layout.segments, pressures) if pressures else {}
        return self._counted_by_broker

    def changes(
        self, spec: TopicSpec, layout: Layout, brokers: Mapping[str, BrokerView], now: Micros
    ) -> list[SegmentChange]:
        """What to change now. Only open segments on healthy brokers, without a planned change, are considered."""
        self._slow_window = slow_window(spec.merge_after)
        self._inherit_load(layout)
        names = {s.name for s in layout.segments}
        for known in (self.segments, self.totals, self.invalid_reports):
            for name in [n for n in known if n not in names]:
                del known[name]
        healthy = [
            s
            for s in layout.segments
            if s.phase is Phase.OPEN
            and not s.successors
            and all(r.incarnation in brokers and brokers[r.incarnation].accepts_segments for r in s.replicas)
        ]
        self.withheld_changes = ()
        if not healthy:
            return []
        staying = [s for s in layout.segments if not s.successors]
        # Also during a pause, so that the scaler's memory is up to date when the pause ends.
        proposed = self._scaler.changes(spec, healthy, self.segments, now, count=len(staying))
        found: list[SegmentChange] = []
        if self.paused:
            self.withheld_changes = tuple(proposed)
        else:
            found += proposed
            if not any(c.action is SegmentAction.SPLIT for c in proposed):
                found += self._moves(spec, staying, healthy, brokers, now)
        return found + self._rolls(spec, healthy, now)

    def _inherit_load(self, layout: Layout) -> None:
        """Copies the load, and the waits that depend on it, to successors of the same range (moves and rolls)."""
        for new in layout.segments:
            if new.phase is Phase.PENDING and new.name not in self.segments and len(new.predecessors) == 1:
                name = new.predecessors[0]
                if name in self.segments and name in layout and layout.segment(name).range == new.range:
                    self.segments[new.name] = self.segments[name].copy_for_successor()
                    self._scaler.inherit(name, new.name)

    def _moves(
        self,
        spec: TopicSpec,
        staying: list[Segment],
        healthy: list[Segment],
        brokers: Mapping[str, BrokerView],
        now: Micros,
    ) -> list[SegmentChange]:
        """Moves a share of the segments at a time, and only those that have not moved for a while."""
        if now - self._checked_at < MOVE_CHECK_INTERVAL or now - self._moved_at < MOVE_INTERVAL:
            return []
        self._checked_at = now
        movable = [s for s in healthy if now - s.opened_at >= MOVE_COOLDOWN]
        known = {name: sustained_pressure(load, spec) for name, load in self.segments.items() if load.observed}
        if not movable or not known:
            return []
        average = sum(known.values()) / len(known)
        pressures = {s.name: known.get(s.name, average) for s in staying}
        max_moves = max(1, min(MAX_MOVES, len(staying) // MOVE_SHARE))
        moves = plan_moves(staying, pressures, brokers, movable, max_moves, self._counted_by_broker)
        if moves:
            self._moved_at = now
        return moves

    def _rolls(self, spec: TopicSpec, segments: list[Segment], now: Micros) -> list[SegmentChange]:
        """Rolls old or large segments, so that quiet topics expire and compact too. Empty ones stay."""
        rolls = []
        for segment in segments:
            total = self.totals.get(segment.name)
            if total is None or not total.messages:
                continue
            if total.bytes >= spec.roll_bytes:
                because = f"{total.bytes / 2**20:,.0f} MiB are in it"
            elif now - segment.opened_at >= spec.roll_age:
                because = f"it is {(now - segment.opened_at) // SECOND} s old"
            else:
                continue
            rolls.append(SegmentChange(SegmentAction.ROLL, (segment.name,), because=because))
        return rolls
