"""What load and age ask of one topic: its segments' loads, and the changes that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from smq_core.autoscale import Autoscaler, Change, HotPartition, Split, lasting
from smq_core.decide import Roll
from smq_core.load import Counters, SegmentLoad, slow_window
from smq_core.model import SECOND, Layout, Phase, Segment, TopicSpec
from smq_core.placement import BrokerView
from smq_core.rebalance import Move, to_move

MOVE_EVERY = 10 * SECOND
LOOK_EVERY = SECOND
SETTLE_AFTER_CHANGE = 10 * SECOND
MOVE_SHARE = 4
"""At most one in so many of a topic's segments moves at a time: its writers go on elsewhere."""
MAX_MOVES = 32


@dataclass(slots=True)
class TopicLoad:
    """Fed by the brokers' reports. Times are microseconds.

    ``paused`` stops splits, merges and moves; rolls go on. What load asks for meanwhile is in ``withheld``, and is
    done as soon as the pause ends, if load still asks for it then.
    """

    segments: dict[str, SegmentLoad] = field(default_factory=dict)
    totals: dict[str, Counters] = field(default_factory=dict)
    hot: dict[str, HotPartition] = field(default_factory=dict)
    absurd: dict[str, str] = field(default_factory=dict)
    """By segment why the last report of it was ignored, when it could not be true."""
    paused: bool = False
    withheld: tuple[Change, ...] = ()
    """Splits and merges that a pause keeps from being done."""
    changed_at: int = 0
    """When a report last said that something was written."""
    _scaler: Autoscaler = field(default_factory=Autoscaler)
    _slow_window: int | None = None
    _moved_at: int = 0
    _looked_at: int = -LOOK_EVERY

    def observe(self, segment: str, counters: Counters, now: int) -> bool:
        """A primary's report. False when it is absurd (``absurd`` says why) or out of date, and ignored."""
        load = self.segments.setdefault(segment, SegmentLoad())
        why = load.objection(now, counters)
        if why is not None:
            self.absurd[segment] = why
            return False
        self.absurd.pop(segment, None)
        taken = load.observe(now, counters, self._slow_window)
        if taken and self.totals.get(segment) != counters:
            self.totals[segment], self.changed_at = counters, now
        return taken

    def changes(
        self, spec: TopicSpec, layout: Layout, brokers: Mapping[str, BrokerView], now: int
    ) -> list[Change | Move | Roll]:
        """What to change now. A segment that is not healthy, or is being changed, is left alone."""
        self._slow_window = slow_window(spec.merge_after)
        self._pass_on(layout)
        names = {s.name for s in layout.segments}
        for known in (self.segments, self.totals, self.absurd):
            for name in [n for n in known if n not in names]:
                del known[name]
        healthy = [
            s
            for s in layout.segments
            if s.phase is Phase.OPEN
            and not s.successors
            and all(r.incarnation in brokers and brokers[r.incarnation].takes_segments for r in s.replicas)
        ]
        self.withheld = ()
        if not healthy:
            return []
        staying = [s for s in layout.segments if not s.successors]
        # While it is paused too: so nothing that is remembered of before is taken for what is now.
        asked = self._scaler.changes(spec, healthy, self.segments, now, count=len(staying))
        self.hot = {c.segment: c for c in asked if isinstance(c, HotPartition)}
        found: list[Change | Move | Roll] = []
        if self.paused:
            self.withheld = tuple(c for c in asked if not isinstance(c, HotPartition))
        else:
            found += asked
            if not any(isinstance(c, Split) for c in asked):
                found += self._moves(spec, staying, healthy, brokers, now)
        return found + self._rolls(spec, healthy, now)

    def _pass_on(self, layout: Layout) -> None:
        """A segment that only moves or rolls keeps its load, and the waits that depend on it."""
        for new in layout.segments:
            if new.phase is Phase.PENDING and new.name not in self.segments and len(new.predecessors) == 1:
                name = new.predecessors[0]
                if name in self.segments and name in layout and layout.segment(name).range == new.range:
                    self.segments[new.name] = self.segments[name].heir()
                    self._scaler.inherit(name, new.name)

    def _moves(
        self,
        spec: TopicSpec,
        staying: list[Segment],
        healthy: list[Segment],
        brokers: Mapping[str, BrokerView],
        now: int,
    ) -> list[Move]:
        """A share of the segments at a time, and only such as have been where they are for a while."""
        if now - self._looked_at < LOOK_EVERY or now - self._moved_at < MOVE_EVERY:
            return []
        self._looked_at = now
        settled = [s for s in healthy if now - s.opened_at >= SETTLE_AFTER_CHANGE]
        known = {name: lasting(load, spec) for name, load in self.segments.items() if load.observed}
        if not settled or not known:
            return []
        usual = sum(known.values()) / len(known)
        pressures = {s.name: known.get(s.name, usual) for s in staying}
        moves = to_move(staying, pressures, brokers, settled, max(1, min(MAX_MOVES, len(staying) // MOVE_SHARE)))
        if moves:
            self._moved_at = now
        return moves

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
