"""How many segments a topic should have, and where to cut: from measured load to splits and merges, with reasons.

*Pressure* is a segment's load in units of the topic's target: the largest of messages, bytes and batches per second,
each divided by its target. A segment is split when its pressure (with a short look ahead along its slope) stays above
1 for ``split_after``; neighbours are merged when their combined pressure stays below ``MERGE_FLOOR`` for
``merge_after``, counted anew after each split and merge. The gap between the two lines and that wait keep it from
swinging.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from smq_core.cutting import cut_by_load, cut_evenly
from smq_core.load import Rates, SegmentLoad
from smq_core.model import SECOND, Segment, TopicSpec

TARGET_BATCHES = 2_000
"""Batches per second that one segment should carry at most: a batch has a fixed cost, whatever its size."""
LOOK_AHEAD = 5.0
"""Seconds along the slope: a ramp is met before it hurts."""
FILL = 0.6
"""Successors of a split are planned to have this pressure at most."""
MAX_PARTS = 16
"""Successors of one split, predecessors of one merge."""
MERGE_FLOOR = 0.25
MAKE_ROOM_AFTER = 30 * SECOND
"""When ``max_segments`` keeps a hot segment from being split, quiet ones merge after so long, if that is sooner."""


@dataclass(frozen=True, slots=True)
class Split:
    segment: str
    boundaries: tuple[int, ...]
    because: str


@dataclass(frozen=True, slots=True)
class Merge:
    segments: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class HotPartition:
    """One partition is the load of this segment: it cannot be cut."""

    segment: str
    partition: int
    because: str


Change = Split | Merge | HotPartition


def pressure(rates: Rates, spec: TopicSpec) -> float:
    """Load in units of the topic's target; 1.0 is the line."""
    return max(
        _times(rates.messages, spec.target_messages_per_second),
        _times(rates.bytes, spec.target_bytes_per_second),
        _times(rates.batches, TARGET_BATCHES),
    )


def lasting(load: SegmentLoad, spec: TopicSpec) -> float:
    """The pressure that was there and is there: neither a moment's peak nor what has ended already."""
    return min(pressure(load.fast, spec), pressure(load.slow, spec))


@dataclass(slots=True)
class Autoscaler:
    """Remembers since when each segment is above the split line or quiet. Times are microseconds."""

    above_since: dict[str, int] = field(default_factory=dict)
    quiet_since: dict[str, int] = field(default_factory=dict)

    def changes(
        self,
        spec: TopicSpec,
        segments: Sequence[Segment],
        loads: Mapping[str, SegmentLoad],
        now: int,
        *,
        count: int | None = None,
    ) -> list[Change]:
        """What to change now. ``segments`` are the open ones that no plan touches, in any order.

        ``loads`` has no others than the layout's. ``count`` is how many segments the topic has besides those that are
        being replaced; by default these.
        """
        ordered = sorted(segments, key=lambda s: s.range.start)
        self._forget(loads)
        count = len(ordered) if count is None else count
        ahead = {s.name: _ahead(spec, loads.get(s.name)) for s in ordered}
        changes, crowded = self._splits(spec, ordered, loads, ahead, spec.max_segments - count, now)
        if not any(isinstance(c, Split) for c in changes):
            changes += self._to_minimum(spec, ordered, loads, spec.min_segments - count)
        if not any(isinstance(c, Split) for c in changes):
            wait = min(spec.merge_after, MAKE_ROOM_AFTER) if crowded else spec.merge_after
            runs = self._quiet_runs(spec, ordered, loads, ahead, count - spec.min_segments, now)
            changes += self._merges(runs, wait, crowded, now)
        return changes

    def _splits(
        self,
        spec: TopicSpec,
        ordered: Sequence[Segment],
        loads: Mapping[str, SegmentLoad],
        ahead: Mapping[str, float],
        room: int,
        now: int,
    ) -> tuple[list[Change], bool]:
        """The hottest first: when ``max_segments`` leaves little room, they get it. True when one got none."""
        crowded = False
        due = [s for s in ordered if self._is_due(spec, s.name, ahead[s.name], loads, now)]
        changes: list[Change] = []
        for segment in sorted(due, key=lambda s: -ahead[s.name]):
            load, level = loads[segment.name], ahead[segment.name]
            words = _words(load.fast, spec, f"for {(now - self.above_since[segment.name]) // SECOND} s")
            if len(segment.range) == 1:
                changes.append(HotPartition(segment.name, segment.range.start, words))
                continue
            boundaries = cut_by_load(segment.range, load.shape, level, FILL, min(MAX_PARTS, room + 1))
            if boundaries:
                changes.append(Split(segment.name, tuple(boundaries), words))
                room -= len(boundaries)
            else:
                crowded = True
        return changes, crowded

    def _is_due(self, spec: TopicSpec, name: str, ahead: float, loads: Mapping[str, SegmentLoad], now: int) -> bool:
        """True when the segment has been above the line for long enough and is not about to fall below it.

        A moment's dip of the look-ahead alone does not start the wait anew: on a noisy load that would never end.
        """
        if ahead > 1.0:
            return now - self.above_since.setdefault(name, now) >= spec.split_after
        if name in self.above_since and pressure(loads[name].fast, spec) <= 1.0:
            del self.above_since[name]
        return False

    def _to_minimum(
        self, spec: TopicSpec, ordered: Sequence[Segment], loads: Mapping[str, SegmentLoad], missing: int
    ) -> list[Change]:
        """Raising ``segments.min`` splits at once: that is how an expected flood is prepared."""
        if missing <= 0:
            return []
        wide = sorted((s for s in ordered if len(s.range) > 1), key=lambda s: -len(s.range))
        changes: list[Change] = []
        for segment in wide:
            if missing <= 0:
                break
            parts = min(missing + 1, len(segment.range)) if len(ordered) == 1 else 2
            load = loads.get(segment.name)
            shape, level = (load.shape, pressure(load.fast, spec)) if load is not None else ((), 0.0)
            boundaries = cut_evenly(segment.range, shape, level, parts)
            changes.append(Split(segment.name, tuple(boundaries), f"segments.min is {spec.min_segments}"))
            missing -= len(boundaries)
        return changes

    def _quiet_runs(
        self,
        spec: TopicSpec,
        ordered: Sequence[Segment],
        loads: Mapping[str, SegmentLoad],
        ahead: Mapping[str, float],
        spare: int,
        now: int,
    ) -> list[tuple[list[Segment], float]]:
        """Neighbours that are quiet and could be one, and their sum; ``spare`` segments can go in all."""
        runs: list[tuple[list[Segment], float]] = []
        run: list[Segment] = []
        total = 0.0
        for segment in ordered:
            quiet = self._quiet(spec, segment, loads.get(segment.name), ahead[segment.name], now)
            if quiet is None:
                run = []
                continue
            joins = (
                bool(run)
                and run[-1].range.stop == segment.range.start
                and total + quiet < MERGE_FLOOR
                and len(run) < MAX_PARTS
                and spare > 0
            )
            if joins:
                run.append(segment)
                total += quiet
                spare -= 1
                runs[-1] = (run, total)
            else:
                run, total = [segment], quiet
                runs.append((run, total))
        return runs

    def _merges(self, runs: Sequence[tuple[list[Segment], float]], wait: int, crowded: bool, now: int) -> list[Change]:
        """Runs of which all have been quiet for ``wait``: one merge of many, not many of two.

        ``crowded``: those that have waited long enough do not wait for the rest of their run.
        """
        changes: list[Change] = []
        for run, total in runs:
            ready = [now - self.quiet_since[s.name] >= wait for s in run]
            for part in _stretches(run, ready) if crowded or all(ready) else []:
                if len(part) > 1:
                    because = f"together at {total:.0%} of the target at most, quiet for {wait // SECOND} s"
                    changes.append(Merge(tuple(s.name for s in part), because))
        return changes

    def _quiet(
        self, spec: TopicSpec, segment: Segment, load: SegmentLoad | None, ahead: float, now: int
    ) -> float | None:
        """The segment's pressure when it is quiet, else None. An unknown load is not quiet."""
        if load is None or not load.observed:
            return None
        level = ahead
        if level < MERGE_FLOOR:
            level = max(level, pressure(load.slow, spec), pressure(load.fast, spec))
        if level >= MERGE_FLOOR:
            self.quiet_since.pop(segment.name, None)
            return None
        self.quiet_since.setdefault(segment.name, now)
        return level

    def inherit(self, old: str, new: str) -> None:
        """``new`` takes the place of ``old``, with the same range: its waits go on."""
        for known in (self.above_since, self.quiet_since):
            if old in known:
                known[new] = known[old]

    def _forget(self, living: Container[str]) -> None:
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


def _ahead(spec: TopicSpec, load: SegmentLoad | None) -> float:
    """The pressure in a moment, if the slope lasts; 0 when nothing is known."""
    if load is None:
        return 0.0
    fast, slope = load.fast, load.slope
    return max(
        _times(fast.messages + slope.messages * LOOK_AHEAD, spec.target_messages_per_second),
        _times(fast.bytes + slope.bytes * LOOK_AHEAD, spec.target_bytes_per_second),
        _times(fast.batches + slope.batches * LOOK_AHEAD, TARGET_BATCHES),
        0.0,
    )


def _words(rates: Rates, spec: TopicSpec, how_long: str) -> str:
    candidates = [
        (_times(rates.messages, spec.target_messages_per_second), f"{rates.messages:,.0f} messages/s"),
        (_times(rates.bytes, spec.target_bytes_per_second), f"{rates.bytes / 2**20:,.1f} MiB/s"),
        (_times(rates.batches, TARGET_BATCHES), f"{rates.batches:,.0f} batches/s"),
    ]
    times, what = max(candidates)
    return f"{what}, {times:.1f} times the target, {how_long}"


def _times(rate: float, target: float) -> float:
    """A target below 1 cannot be met, nor written into a manifest; 1 is what comes nearest."""
    return rate / max(target, 1)
