"""The autoscaler on realistic loads: it follows a flood, settles, and scales back; it never oscillates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq_core.model.entities import SECOND, Durability, Phase, Segment, TopicSpec
from smq_core.model.keyspace import KeyRange, covers_exactly, merge_ranges
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.scaling.autoscaler import Autoscaler, pressure
from smq_core.scaling.segment_load import MeasuredLoad, TrafficCounters, TrafficRates
from smq_core.scaling.split_points import even_split_points, per_partition, split_points_by_load

SLICES = 64
SPEC = TopicSpec(partitions=1024, max_segments=64, target_messages_per_second=1000, merge_after=60 * SECOND)


@dataclass
class SimulatedRing:
    """A topic whose load per partition is given; changes are carried out at once, reports come each second."""

    spec: TopicSpec
    now: int = 0
    scaler: Autoscaler = field(default_factory=Autoscaler)
    segments: list[Segment] = field(default_factory=list)
    loads: dict[str, MeasuredLoad] = field(default_factory=dict)
    counted: dict[str, list[float]] = field(default_factory=dict)
    changes: list[tuple[int, object]] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self._open(KeyRange(0, self.spec.partitions))

    def _open(self, range_: KeyRange) -> None:
        name = f"s{self.made}"
        self.made += 1
        self.segments.append(
            Segment(
                name=name,
                number=self.made,
                range=range_,
                phase=Phase.OPEN,
                durability=Durability.REPLICATED,
                replicas=(),
                opened_at=self.now,
            )
        )
        self.loads[name] = MeasuredLoad()
        self.counted[name] = [0.0] * len(range_)

    def second(self, per_partition_rate: list[float]) -> None:
        self.now += SECOND
        for segment in self.segments:
            counted = self.counted[segment.name]
            for i, partition in enumerate(range(segment.range.start, segment.range.stop)):
                counted[i] += per_partition_rate[partition]
            slices = [0.0] * SLICES
            for i, count in enumerate(counted):
                slices[i * SLICES // len(counted)] += count
            total = int(sum(counted))
            report = TrafficCounters(total, total * 10, total // 100, tuple(int(s) for s in slices))
            assert self.loads[segment.name].observe(self.now, report)
        for change in self.scaler.changes(self.spec, self.segments, self.loads, self.now):
            self.changes.append((self.now, change))
            self._carry_out(change)
        assert covers_exactly((s.range for s in self.segments), KeyRange(0, self.spec.partitions))
        assert len(self.segments) <= self.spec.max_segments

    def _carry_out(self, change: SegmentChange) -> None:
        by_name = {s.name: s for s in self.segments}
        if change.action is SegmentAction.SPLIT:
            old = by_name[change.segments[0]]
            self.segments.remove(old)
            for part in old.range.split_at(change.boundaries):
                self._open(part)
        elif change.action is SegmentAction.MERGE:
            olds = [by_name[name] for name in change.segments]
            for old in olds:
                self.segments.remove(old)
            self._open(merge_ranges(o.range for o in olds))

    def pressures(self, per_partition_rate: list[float]) -> list[float]:
        return [
            pressure(TrafficRates(messages=sum(per_partition_rate[s.range.start : s.range.stop])), self.spec)
            for s in self.segments
        ]


def even(total: float, partitions: int = 1024) -> list[float]:
    return [total / partitions] * partitions


def test_flood_of_fifty_times_is_met_and_goes_back() -> None:
    ring = SimulatedRing(SPEC)
    for _ in range(20):
        ring.second(even(500))
    assert len(ring.segments) == 1
    flood = even(25_000)
    for _ in range(30):
        ring.second(flood)
    assert max(ring.pressures(flood)) <= 1.0
    for _ in range(400):
        ring.second(even(50))
    assert len(ring.segments) == 1
    before = len(ring.changes)
    for _ in range(1800):
        ring.second(even(50))
    assert len(ring.changes) == before, "thirty minutes of rest changed something"


def test_zipf_keys_are_balanced() -> None:
    weights = [1 / (rank + 1) ** 1.1 for rank in range(20_000)]
    load = [0.0] * 1024
    for key, weight in enumerate(weights):
        load[(key * 2654435761) % 1024] += weight
    load = [x / sum(weights) * 6000 for x in load]
    ring = SimulatedRing(SPEC)
    for _ in range(60):
        ring.second(load)
    shares = [p for p, s in zip(ring.pressures(load), ring.segments, strict=True) if len(s.range) > 1]
    assert max(shares) <= 1.0
    hottest = max(ring.pressures(load))
    if hottest > 1.0:
        assert max(load) / SPEC.target_messages_per_second > 1.0, "only a hot partition may stay above the line"


def test_a_hot_partition_is_said_and_left() -> None:
    load = [0.0] * 1024
    load[700] = 5000.0
    ring = SimulatedRing(SPEC)
    said: set[int] = set()
    for _ in range(120):
        ring.second(load)
        said |= set(ring.scaler.hot_partitions.values())
    assert said == {700}
    before = len(ring.changes)
    for _ in range(600):
        ring.second(load)
    assert all(c.action is not SegmentAction.SPLIT for _, c in ring.changes[before:])


def test_raising_the_minimum_splits_at_once() -> None:
    ring = SimulatedRing(SPEC)
    ring.spec = replace(SPEC, min_segments=8)
    ring.scaler.changes(ring.spec, ring.segments, ring.loads, 0)
    change = ring.scaler.changes(ring.spec, ring.segments, ring.loads, 0)
    assert len(change) == 1 and change[0].action is SegmentAction.SPLIT and len(change[0].boundaries) == 7


def test_a_ramp_is_met_before_the_line() -> None:
    ring = SimulatedRing(replace(SPEC, split_after=2 * SECOND))
    for second in range(60):
        ring.second(even(100 + 40 * second))
        if len(ring.segments) > 1:
            break
    assert 100 + 40 * second < 1.1 * 1000


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0, 3000), min_size=1, max_size=64),
    st.integers(1, 4),
    st.integers(4, 64),
)
def test_no_steady_load_makes_it_oscillate(shape: list[float], low: int, high: int) -> None:
    spec = replace(SPEC, partitions=64, min_segments=low, max_segments=high, merge_after=20 * SECOND)
    load = [shape[i % len(shape)] / 8 for i in range(64)]
    ring = SimulatedRing(spec)
    for _ in range(150):
        ring.second(load)
    assert len(ring.segments) >= low
    before = len(ring.changes)
    for _ in range(200):
        ring.second(load)
    assert len(ring.changes) == before, ring.changes[before:]


@given(st.integers(2, 300), st.lists(st.floats(0, 1e6), max_size=64), st.integers(2, 16))
def test_cuts_lie_inside_and_ascend(size: int, shape: list[float], parts: int) -> None:
    parts = min(parts, size)
    whole = KeyRange(7, 7 + size)
    boundaries = even_split_points(whole, shape, sum(shape), parts)
    assert len(boundaries) == parts - 1
    assert covers_exactly(whole.split_at(boundaries), whole)


@given(
    st.integers(2, 300), st.lists(st.floats(0, 100), min_size=1, max_size=64), st.floats(0.01, 100), st.integers(2, 16)
)
def test_cuts_by_load_are_few_and_as_even_as_the_slices_allow(
    size: int, shape: list[float], level: float, most: int
) -> None:
    shape = shape[: min(64, size)]
    shape += [0.0] * (min(64, size) - len(shape))
    whole = KeyRange(7, 7 + size)
    boundaries = split_points_by_load(whole, shape, level, 0.6, most)
    assert 1 <= len(boundaries) < most
    parts = whole.split_at(boundaries)
    assert covers_exactly(parts, whole)
    slices = [w * level / sum(shape) for w in shape] if any(shape) else [level / len(shape)] * len(shape)
    load = per_partition(size, slices)
    fullest = max(sum(load[p.start - 7 : p.stop - 7]) for p in parts)
    if fullest > max(0.6, *slices) * 1.001:  # then no way of cutting into ``most`` parts does better
        assert parts_within(slices, fullest - level / 1000) > most


def parts_within(slices: list[float], limit: float) -> int:
    """The fewest runs of neighbours that carry at most ``limit`` each, slices above it by themselves."""
    parts, filled = 1, 0.0
    for number, load in enumerate(slices):
        if number and filled + load > limit:
            parts, filled = parts + 1, 0.0
        filled += load
    return parts


def test_a_slice_that_is_too_hot_becomes_a_segment_of_its_own() -> None:
    shape = [1.0] * 64
    shape[10] = 200.0
    parts = KeyRange(0, 1024).split_at(split_points_by_load(KeyRange(0, 1024), shape, 4.0, 0.6, 16))
    assert KeyRange(160, 176) in parts
    assert len(parts) == 4


@given(st.integers(1, 300), st.lists(st.floats(0.001, 1e6), min_size=1, max_size=64))
def test_spreading_slices_keeps_the_sum(size: int, shape: list[float]) -> None:
    assert math.isclose(sum(per_partition(size, shape)), sum(shape), rel_tol=1e-9)


@pytest.mark.parametrize(
    "counters",
    [
        TrafficCounters(-1),
        TrafficCounters(10, histogram=(1, -2)),
        TrafficCounters(int(1e30)),
        TrafficCounters(float("nan")),
    ],  # type: ignore[arg-type]
)
def test_invalid_reports_change_nothing(counters: TrafficCounters) -> None:
    load = MeasuredLoad()
    load.observe(0, TrafficCounters(5, 50, 1))
    load.observe(SECOND, TrafficCounters(10, 100, 2))
    before = load.fast
    assert not load.observe(2 * SECOND, counters)
    assert not load.observe(SECOND, TrafficCounters(20, 200, 3)), "time that stands still"
    assert load.fast == before
