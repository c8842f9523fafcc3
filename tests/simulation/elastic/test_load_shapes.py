"""Realistic loads on the real scaling code: it reacts in time, and stops to change segments after the load ends.

The model checks each second that the ring is covered, and that the number of segments is within its bounds. It also
checks that a broker has no two replicas of a segment, and that nothing is placed on a draining broker.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.elastic.checks import early_changes, scaling, stable_since, unevenness
from benchmarks.elastic.model import Environment, Model, environment_for, spec_for
from benchmarks.elastic.record import Record
from benchmarks.elastic.shapes import make, stretched

pytestmark = pytest.mark.simulation


def run(name: str, seed: int, seconds: int | None = None) -> Record:
    shape = make(name, seed=seed)
    world = Environment(spec_for(shape))
    record = Model(shape, world, seed).run(seconds)
    assert not early_changes(record, world.spec)
    return record


@pytest.mark.slow
def test_a_flood_is_met_within_half_a_minute_and_left_behind(seed: int) -> None:
    record = run("flood", seed)
    begin = make("flood").first_over_target()
    assert begin is not None
    first = next(s.second for s in record.samples if s.segments >= 8)
    assert record.samples[begin].segments == 1 and first - begin <= 30
    late = record.samples[begin + 120 : 355]
    assert all(s.behind < 0.5 * s.offered for s in late), "two minutes later nobody waits, but for a moment at a seal"
    assert max(s.behind / s.offered for s in record.samples[begin:355]) < 15, "producers wait too long"
    rest = record.samples[-1_800:]
    assert {(s.segments, s.brokers) for s in rest} == {(1, 3)}
    assert stable_since(record) < rest[0].second


@pytest.mark.slow
def test_a_ramp_is_met_before_it_hurts(seed: int) -> None:
    record = run("ramp", seed)
    assert max(max(s.pressures) for s in record.samples) < 1.15
    assert max(s.behind / s.offered for s in record.samples[1:]) < 1.0


@pytest.mark.parametrize("more", range(3))
def test_zipf_keys_end_up_even(seed: int, more: int) -> None:
    record = run("zipf", seed + more, 300)
    assert unevenness(record) <= 1.5
    assert stable_since(record) < 250
    alone = [p for p, wide in zip(record.samples[-1].pressures, record.samples[-1].wide, strict=True) if not wide]
    assert all(p <= 1.0 for p in alone) or record.hot, "a partition above the line was not reported"


def test_one_hot_key_is_isolated_and_said(seed: int) -> None:
    record = run("hot-key", seed)
    shape = make("hot-key", seed=seed)
    hot = int((shape.at(300) - shape.at(0)).argmax())
    assert list(record.hot) == [hot]
    assert record.hot[hot] - 60 < 40
    others = [p for s in record.samples[120:590] for p, wide in zip(s.pressures, s.wide, strict=True) if wide]
    assert max(others) < 1.0
    assert len([e for e in scaling(record) if e.action == "split"]) <= 3, "a partition cannot be cut: it was tried"


@pytest.mark.slow
def test_a_moving_hot_range_is_followed(seed: int) -> None:
    record = run("hot-range", seed)
    moving = record.samples[100:]
    assert sum(s.overload for s in moving) / len(moving) < 0.1
    assert max(s.segments for s in record.samples) <= 64
    assert record.changes("merge"), "what the range has left is never joined again"


@pytest.mark.slow
def test_a_backfill_beside_online_traffic(seed: int) -> None:
    record = run("backfill", seed)
    backfill = record.samples[150:920]
    assert sum(s.overload for s in backfill) / len(backfill) < 0.5
    assert record.samples[-1].segments <= 6


@pytest.mark.slow
def test_an_on_off_load_does_not_make_it_oscillate(seed: int) -> None:
    """The topic is scaled for the peaks once. The pauses are too short to scale back."""
    record = run("on-off", seed)
    assert not record.changes("merge")
    assert all(e.second < 300 for e in scaling(record))
    assert len({s.brokers for s in record.samples[900:]}) == 1


@pytest.mark.slow
def test_two_days_in_an_hour_and_a_half(seed: int) -> None:
    """32 times faster than real time. There are splits while load rises, merges while it falls, and nothing else."""
    shape = stretched(make("diurnal", seed=seed), 32)
    world = Environment(replace(spec_for(shape), roll_bytes=2**50))
    record = Model(shape, world, seed).run(2 * shape.seconds)
    assert not early_changes(record, world.spec)
    most = max(s.segments for s in record.samples)
    splits, merges = record.changes("split"), record.changes("merge")
    assert len(splits) + len(merges) <= 2 * 2 * most
    assert max(max(s.pressures) for s in record.samples[60:]) < 1.3


def test_the_same_seed_is_the_same_history(seed: int) -> None:
    one, two = run("hot-range", seed, 200), run("hot-range", seed, 200)
    assert one.samples == two.samples and one.events == two.events


@pytest.mark.slow
def test_ten_thousand_segments_and_a_hot_hundredth(seed: int) -> None:
    shape = make("ten-thousand", seed=seed)
    world = environment_for(shape)
    record = Model(shape, world, seed).run(32)
    assert record.samples[15].segments == 10_000
    assert not any(e.second < 20 for e in scaling(record)), "at rest it changed something"
    assert max(record.samples[-1].pressures) <= 1.0
    assert record.samples[-1].segments < 10_600
