"""How many segments a topic should have, and where to cut: from measured load to splits and merges, with reasons.

*Pressure* is a segment's load in units of the topic's target: the largest of messages, bytes and batches per second,
each divided by its target. A segment is split when its pressure (with a short look ahead along its slope) stays above
1 for ``split_after``; neighbours are merged when their combined pressure stays below ``MERGE_FLOOR`` for
``merge_after``. The gap between the two lines, and that only segments older than ``merge_after`` merge, keep it from
swinging.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from smq_core.keyspace import KeyRange
from smq_core.load import SECOND, Rates, SegmentLoad
from smq_core.model import Segment, TopicSpec

TARGET_BATCHES = 2_000
"""Batches per second that one segment should carry at most: a batch has a fixed cost, whatever its size."""
LOOK_AHEAD = 5.0
"""Seconds along the slope: a ramp is met before it hurts."""
FILL = 0.6
"""Successors of a split are planned to have this pressure."""
MAX_PARTS = 16
MERGE_FLOOR = 0.1


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
        rates.messages / spec.target_messages_per_second,
        rates.bytes / spec.target_bytes_per_second,
        rates.batches / TARGET_BATCHES,
    )


@dataclass(slots=True)
class Autoscaler:
    """Remembers since when each segment is above the split line or quiet. Times are microseconds."""

    above_since: dict[str, int] = field(default_factory=dict)
    quiet_since: dict[str, int] = field(default_factory=dict)

    def changes(
        self, spec: TopicSpec, segments: Sequence[Segment], loads: Mapping[str, SegmentLoad], now: int
    ) -> list[Change]:
        """What to change now. ``segments`` are the open ones that no plan touches, in any order."""
        ordered = sorted(segments, key=lambda s: s.range)
        self._forget({s.name for s in ordered})
        room = spec.max_segments - len(ordered)
        changes: list[Change] = []
        for segment in ordered:
            load = loads.get(segment.name)
            change = self._split(spec, segment, load, room, now) if load is not None else None
            if isinstance(change, Split):
                room -= len(change.boundaries)
            if change is not None:
                changes.append(change)
        if not any(isinstance(c, Split) for c in changes):
            changes += self._to_minimum(spec, ordered, loads)
        if not any(isinstance(c, Split) for c in changes):
            changes += self._merges(spec, ordered, loads, now)
        return changes

    def _split(self, spec: TopicSpec, segment: Segment, load: SegmentLoad, room: int, now: int) -> Change | None:
        ahead = pressure(load.fast.plus(load.slope, LOOK_AHEAD), spec)
        if ahead <= 1.0:
            self.above_since.pop(segment.name, None)
            return None
        since = self.above_since.setdefault(segment.name, now)
        if now - since < spec.split_after:
            return None
        words = _words(load.fast, spec, f"for {(now - since) // SECOND} s")
        if len(segment.range) == 1:
            return HotPartition(segment.name, segment.range.start, words)
        parts = min(math.ceil(ahead / FILL), MAX_PARTS, len(segment.range), room + 1)
        if parts < 2:
            return None
        boundaries = cut_evenly(segment.range, load.shape, parts)
        return Split(segment.name, tuple(boundaries), words)

    def _to_minimum(
        self, spec: TopicSpec, ordered: Sequence[Segment], loads: Mapping[str, SegmentLoad]
    ) -> list[Change]:
        """Raising ``segments.min`` splits at once: that is how an expected flood is prepared."""
        missing = spec.min_segments - len(ordered)
        wide = sorted((s for s in ordered if len(s.range) > 1), key=lambda s: -len(s.range))
        changes: list[Change] = []
        for segment in wide:
            if missing <= 0:
                break
            parts = min(missing + 1, len(segment.range)) if len(ordered) == 1 else 2
            load = loads.get(segment.name)
            boundaries = cut_evenly(segment.range, load.shape if load is not None else (), parts)
            changes.append(Split(segment.name, tuple(boundaries), f"segments.min is {spec.min_segments}"))
            missing -= len(boundaries)
        return changes

    def _merges(
        self, spec: TopicSpec, ordered: Sequence[Segment], loads: Mapping[str, SegmentLoad], now: int
    ) -> list[Change]:
        """Runs of quiet neighbours become one, as long as their sum stays below the floor."""
        spare = len(ordered) - spec.min_segments
        changes: list[Change] = []
        run: list[Segment] = []
        total = 0.0
        for segment in [*ordered, None]:
            quiet = self._quiet(spec, segment, loads, now) if segment is not None else None
            fits = quiet is not None and total + quiet < MERGE_FLOOR and len(run) <= spare
            if segment is not None and quiet is not None and fits:
                run.append(segment)
                total += quiet
                continue
            if len(run) > 1:
                spare -= len(run) - 1
                because = f"together at {total:.0%} of the target for {spec.merge_after // SECOND} s"
                changes.append(Merge(tuple(s.name for s in run), because))
            run = [segment] if segment is not None and quiet is not None and quiet < MERGE_FLOOR else []
            total = quiet or 0.0 if run else 0.0
        return changes

    def _quiet(self, spec: TopicSpec, segment: Segment, loads: Mapping[str, SegmentLoad], now: int) -> float | None:
        """The segment's pressure when it has been quiet for long enough, else None. An unknown load is not quiet."""
        load = loads.get(segment.name)
        if load is None or not load.observed:
            return None
        level = max(pressure(load.slow, spec), pressure(load.fast, spec))
        if level >= MERGE_FLOOR:
            self.quiet_since.pop(segment.name, None)
            return None
        since = self.quiet_since.setdefault(segment.name, now)
        old_enough = min(now - since, now - segment.opened_at) >= spec.merge_after
        return level if old_enough else None

    def _forget(self, living: set[str]) -> None:
        for known in (self.above_since, self.quiet_since):
            for name in [n for n in known if n not in living]:
                del known[name]


def cut_evenly(whole: KeyRange, shape: Sequence[float], parts: int) -> list[int]:
    """The boundaries that cut a range into ``parts`` of equal measured load; each part has one partition at least.

    ``shape`` has one weight for each equal slice of the range; load within a slice counts as even. Without any load
    the parts are equally wide.
    """
    size = len(whole)
    weights = per_partition(size, shape)
    boundaries: list[int] = []
    total, passed = sum(weights), 0.0
    at = 0
    for part in range(1, parts):
        goal = total * part / parts
        last = size - (parts - part)
        first = (boundaries[-1] - whole.start if boundaries else 0) + 1
        while at < last and (at < first or passed + weights[at] / 2 < goal):
            passed += weights[at]
            at += 1
        boundaries.append(whole.start + at)
    return boundaries


def per_partition(size: int, shape: Sequence[float]) -> list[float]:
    """Spreads slices' weights over ``size`` partitions; slice i of n covers ``[i * size / n, (i + 1) * size / n)``."""
    if not shape or sum(shape) <= 0:
        return [1.0] * size
    n = len(shape)
    weights = [0.0] * size
    for i, weight in enumerate(shape):
        start, stop = i * size / n, (i + 1) * size / n
        first, last = int(start), min(size - 1, math.ceil(stop) - 1)
        for partition in range(first, last + 1):
            share = min(stop, partition + 1) - max(start, partition)
            weights[partition] += weight * share / (stop - start)
    return weights


def _words(rates: Rates, spec: TopicSpec, how_long: str) -> str:
    candidates = [
        (rates.messages / spec.target_messages_per_second, f"{rates.messages:,.0f} messages/s"),
        (rates.bytes / spec.target_bytes_per_second, f"{rates.bytes / 2**20:,.1f} MiB/s"),
        (rates.batches / TARGET_BATCHES, f"{rates.batches:,.0f} batches/s"),
    ]
    times, what = max(candidates)
    return f"{what}, {times:.1f} times the target, {how_long}"
