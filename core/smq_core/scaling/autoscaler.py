"""Decides splits and merges from measured load, with reasons.

*Pressure* is a segment's load in units of the topic's target: the largest of messages, bytes and batches per second,
each divided by its target. A segment is split when its pressure (with a short look ahead along its slope) stays above
1 for ``split_after``. Neighbours are merged when their combined pressure stays below ``MERGE_FLOOR`` for
``merge_after``, counted anew after each split and merge. The gap between the two thresholds and that wait prevent
oscillation.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from smq_core.model.entities import SECOND, Micros, Segment, TopicSpec
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.scaling.segment_load import MeasuredLoad, TrafficRates
from smq_core.scaling.split_points import even_split_points, split_points_by_load

# The most batches per second for one segment, because each batch has a fixed cost.
TARGET_BATCHES_PER_SECOND = 2_000
# How far the slope is extrapolated, so that a split comes before a ramp overloads the segment.
LOOK_AHEAD_SECONDS = 5.0
# The highest planned pressure of a split's successors.
TARGET_PRESSURE = 0.6
# The most successors of one split, and the most predecessors of one merge.
MAX_PARTS = 16
MERGE_FLOOR = 0.25
# The quiet time after which segments merge when ``max_segments`` keeps a hot one from being split, if that is sooner.
CROWDED_MERGE_AFTER: Micros = 30 * SECOND


def pressure(rates: TrafficRates, spec: TopicSpec) -> float:
    """Load in units of the topic's target; 1.0 is the threshold."""
    return max(
        _ratio(rates.messages, spec.target_messages_per_second),
        _ratio(rates.bytes, spec.target_bytes_per_second),
        _ratio(rates.batches, TARGET_BATCHES_PER_SECOND),
    )


def sustained_pressure(load: MeasuredLoad, spec: TopicSpec) -> float:
    """The lower of the fast and the slow pressure: neither a short peak nor a load that has ended counts."""
    return min(pressure(load.fast, spec), pressure(load.slow, spec))


@dataclass(slots=True)
class Autoscaler:
    """Remembers since when each segment is above the split threshold, or quiet."""

    above_since: dict[str, Micros] = field(default_factory=dict)
    quiet_since: dict[str, Micros] = field(default_factory=dict)
    hot_partitions: dict[str, int] = field(default_factory=dict)
    """The partitions of segments that are above the threshold now and have no other one, so that no split helps."""

    def changes(
        self,
        spec: TopicSpec,
        segments: Sequence[Segment],
        loads: Mapping[str, MeasuredLoad],
        now: Micros,
        *,
        count: int | None = None,
    ) -> list[SegmentChange]:
        """What to change now. ``segments`` are the open ones that no plan changes, in any order.

        ``loads`` has only segments of the layout. ``count`` is the number of segments without those that are being
        replaced; by default that of ``segments``.
        """
        ordered = sorted(segments, key=lambda s: s.range.start)
        self._prune(loads)
        count = len(ordered) if count is None else count
        projected = {s.name: _projected_pressure(spec, loads.get(s.name)) for s in ordered}
        changes, crowded = self._splits(spec, ordered, loads, projected, spec.max_segments - count, now)
        if not any(c.action is SegmentAction.SPLIT for c in changes):
            changes += self._to_minimum(spec, ordered, loads, spec.min_segments - count)
        if not any(c.action is SegmentAction.SPLIT for c in changes):
            wait = min(spec.merge_after, CROWDED_MERGE_AFTER) if crowded else spec.merge_after
            runs = self._quiet_runs(spec, ordered, loads, projected, count - spec.min_segments, now)
            changes += self._merges(runs, wait, crowded, now)
        return changes

    def _splits(
        self,
        spec: TopicSpec,
        ordered: Sequence[Segment],
        loads: Mapping[str, MeasuredLoad],
        projected: Mapping[str, float],
        capacity: int,
        now: Micros,
    ) -> tuple[list[SegmentChange], bool]:
        """Splits the hottest segments first, as far as ``max_segments`` allows. True if it prevented one."""
        crowded = False
        self.hot_partitions = {}
        due = [s for s in ordered if self._is_due(spec, s.name, projected[s.name], loads, now)]
        changes: list[SegmentChange] = []
        for segment in sorted(due, key=lambda s: -projected[s.name]):
            load, level = loads[segment.name], projected[segment.name]
            description = _describe_load(load.fast, spec, f"for {(now - self.above_since[segment.name]) // SECOND} s")
            if len(segment.range) == 1:
                self.hot_partitions[segment.name] = segment.range.start
                continue
            boundaries = split_points_by_load(
                segment.range, load.shape, level, TARGET_PRESSURE, min(MAX_PARTS, capacity + 1)
            )
            if boundaries:
                changes.append(SegmentChange(SegmentAction.SPLIT, (segment.name,), tuple(boundaries), description))
                capacity -= len(boundaries)
            else:
                crowded = True
        return changes, crowded

    def _is_due(
        self, spec: TopicSpec, name: str, projected: float, loads: Mapping[str, MeasuredLoad], now: Micros
    ) -> bool:
        """True if the segment was above the threshold for long enough, and its look-ahead still is.

        A short dip of the look-ahead alone does not restart the wait, which a noisy load would otherwise never end.
        """
        if projected > 1.0:
            return now - self.above_since.setdefault(name, now) >= spec.split_after
        if name in self.above_since and pressure(loads[name].fast, spec) <= 1.0:
            del self.above_since[name]
        return False

    def _to_minimum(
        self, spec: TopicSpec, ordered: Sequence[Segment], loads: Mapping[str, MeasuredLoad], missing: int
    ) -> list[SegmentChange]:
        """Splits at once if ``segments.min`` was raised, which prepares a topic for an expected flood."""
        if missing <= 0:
            return []
        wide = sorted((s for s in ordered if len(s.range) > 1), key=lambda s: -len(s.range))
        changes: list[SegmentChange] = []
        for segment in wide:
            if missing <= 0:
                break
            parts = min(missing + 1, len(segment.range)) if len(ordered) == 1 else 2
            load = loads.get(segment.name)
            shape, level = (load.shape, pressure(load.fast, spec)) if load is not None else ((), 0.0)
            boundaries = even_split_points(segment.range, shape, level, parts)
            because = f"segments.min is {spec.min_segments}"
            changes.append(SegmentChange(SegmentAction.SPLIT, (segment.name,), tuple(boundaries), because))
            missing -= len(boundaries)
        return changes

    def _quiet_runs(
        self,
        spec: TopicSpec,
        ordered: Sequence[Segment],
        loads: Mapping[str, MeasuredLoad],
        projected: Mapping[str, float],
        removable: int,
        now: Micros,
    ) -> list[tuple[list[Segment], float]]:
        """Runs of quiet neighbours that could be one segment, with their sums; at most ``removable`` merge away."""
        runs: list[tuple[list[Segment], float]] = []
        run: list[Segment] = []
        total = 0.0
        for segment in ordered:
            quiet = self._quiet(spec, segment, loads.get(segment.name), projected[segment.name], now)
            if quiet is None:
                run = []
                continue
            joins = (
                bool(run)
                and run[-1].range.stop == segment.range.start
                and total + quiet < MERGE_FLOOR
                and len(run) < MAX_PARTS
                and removable > 0
            )
            if joins:
                run.append(segment)
                total += quiet
                removable -= 1
                runs[-1] = (run, total)
            else:
                run, total = [segment], quiet
                runs.append((run, total))
        return runs

    def _merges(
        self, runs: Sequence[tuple[list[Segment], float]], wait: Micros, crowded: bool, now: Micros
    ) -> list[SegmentChange]:
        """Merges runs that were quiet for ``wait`` as a whole: one merge of many, not many of two.

        With ``crowded``, segments that have waited long enough do not wait for the rest of their run.
        """
        changes: list[SegmentChange] = []
        for run, total in runs:
            ready = [now - self.quiet_since[s.name] >= wait for s in run]
            for part in _stretches(run, ready) if crowded or all(ready) else []:
                if len(part) > 1:
                    because = f"together at {total:.0%} of the target at most, quiet for {wait // SECOND} s"
                    changes.append(SegmentChange(SegmentAction.MERGE, tuple(s.name for s in part), because=because))
        return changes

    def _quiet(
        self, spec: TopicSpec, segment: Segment, load: MeasuredLoad | None, projected: float, now: Micros
    ) -> float | None:
        """The segment's pressure if it is quiet, else None. An unknown load is not quiet."""
        if load is None or not load.observed:
            return None
        level = projected
        if level < MERGE_FLOOR:
            level = max(level, pressure(load.slow, spec), pressure(load.fast, spec))
        if level >= MERGE_FLOOR:
            self.quiet_since.pop(segment.name, None)
            return None
        self.quiet_since.setdefault(segment.name, now)
        return level

    def inherit(self, old: str, new: str) -> None:
        """Copies the waits of ``old`` to ``new``, its successor with the same range."""
        for known in (self.above_since, self.quiet_since):
            if old in known:
                known[new] = known[old]

    def _prune(self, living: Container[str]) -> None:
        for known in (self.above_since, self.quiet_since):
            for name in [n for n in known if n not in living]:
                del known[name]


def _stretches(run: Sequence[Segment], ready: Sequence[bool]) -> list[list[Segment]]:
    """The longest stretches of neighbours that are all ready."""
    found: list[list[Segment]] = [[]]
    for segment, is_ready in zip(run, ready, strict=True):
        if is_ready:
            found[-1].append(segment)
        else:
            found.append([])
    return found


def _projected_pressure(spec: TopicSpec, load: MeasuredLoad | None) -> float:
    """The pressure soon, if the slope lasts; 0 if the load is unknown."""
    if load is None:
        return 0.0
    fast, slope = load.fast, load.slope
    return max(
        _ratio(fast.messages + slope.messages * LOOK_AHEAD_SECONDS, spec.target_messages_per_second),
        _ratio(fast.bytes + slope.bytes * LOOK_AHEAD_SECONDS, spec.target_bytes_per_second),
        _ratio(fast.batches + slope.batches * LOOK_AHEAD_SECONDS, TARGET_BATCHES_PER_SECOND),
        0.0,
    )


def _describe_load(rates: TrafficRates, spec: TopicSpec, how_long: str) -> str:
    candidates = [
        (_ratio(rates.messages, spec.target_messages_per_second), f"{rates.messages:,.0f} messages/s"),
        (_ratio(rates.bytes, spec.target_bytes_per_second), f"{rates.bytes / 2**20:,.1f} MiB/s"),
        (_ratio(rates.batches, TARGET_BATCHES_PER_SECOND), f"{rates.batches:,.0f} batches/s"),
    ]
    ratio, what = max(candidates)
    return f"{what}, {ratio:.1f} times the target, {how_long}"


def _ratio(rate: float, target: float) -> float:
    """The rate in units of the target, which counts as at least 1."""
    return rate / max(target, 1)
