"""The history of the key space shows every range with its load, and never outgrows its limits."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from smq_core.model.entities import Durability, Layout, Phase, Replica, Segment, TopicSpec, segment_name
from smq_core.model.keyspace import KeyRange
from smq_core.scaling.segment_load import MeasuredLoad, TrafficRates
from smq_operator.dashboard import history
from smq_operator.dashboard.history import LEVELS_PER_TARGET, Column, KeyspaceHistory, column_of

SPEC = TopicSpec(partitions=64, target_messages_per_second=1000)
NO_RATES = TrafficRates()


def segment(start: int, stop: int, number: int = 0, phase: Phase = Phase.OPEN) -> Segment:
    range_ = KeyRange(start, stop)
    name = segment_name("default/t", range_, number)
    return Segment(
        name=name,
        number=number,
        range=range_,
        phase=phase,
        durability=Durability.REPLICATED,
        replicas=(Replica("b", "i", "x:1"),),
    )


def layout(*segments: Segment) -> Layout:
    return Layout(topic="default/t", uid="uid", partitions=64, segments=segments)


def load(messages: float) -> MeasuredLoad:
    return MeasuredLoad(fast=TrafficRates(messages))


def column(ranges: int = 1) -> Column:
    return Column(array("H", range(ranges)), bytes(ranges), NO_RATES)


def test_a_column_has_every_range_with_its_load_in_units_of_the_target() -> None:
    segments = segment(32, 64, 1), segment(0, 16, 2), segment(16, 32, 3)
    loads = {segments[0].name: load(1000), segments[1].name: load(100), segments[2].name: load(1e9)}
    made = column_of(layout(*segments), SPEC, loads, TrafficRates(7.0))
    assert (list(made.starts), list(made.levels)) == ([0, 16, 32], [LEVELS_PER_TARGET // 10, 255, LEVELS_PER_TARGET])
    assert made.rates.messages == 7.0


def test_a_segment_is_shown_until_it_is_sealed_and_its_successors_from_then_on() -> None:
    old, new = segment(0, 64, 0, Phase.SEALING), segment(0, 32, 1, Phase.PENDING)
    assert list(column_of(layout(old, new), SPEC, {}, NO_RATES).starts) == [0]
    ended = replace(new, phase=Phase.OPEN), segment(32, 64, 2)
    assert list(column_of(layout(*ended), SPEC, {}, NO_RATES).starts) == [0, 32]


def test_of_many_ranges_neighbours_are_shown_as_one_with_the_highest_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_RANGES", 4)
    segments = [segment(at, at + 8, at) for at in range(0, 64, 8)]
    made = column_of(layout(*segments), SPEC, {segments[5].name: load(2000)}, NO_RATES)
    assert (list(made.starts), list(made.levels)) == ([0, 16, 32, 48], [0, 0, 2 * LEVELS_PER_TARGET, 0])


def test_the_oldest_rounds_go_beyond_any_limit() -> None:
    by_rounds = KeyspaceHistory(max_rounds=3)
    for at in range(1, 6):
        by_rounds.add(at, {"t": column()})
    assert [at for at, _ in by_rounds.columns("t")] == [3, 4, 5]

    by_columns = KeyspaceHistory(max_columns=5)
    for at in range(1, 6):
        by_columns.add(at, {"t": column(), "u": column()})
    assert [at for at, _ in by_columns.columns("u")] == [4, 5]

    by_ranges = KeyspaceHistory(max_ranges=100)
    for at in range(1, 6):
        by_ranges.add(at, {"t": column(40)})
    assert [at for at, _ in by_ranges.columns("t")] == [4, 5]
    by_ranges.add(6, {"t": column(1000)})
    assert [at for at, _ in by_ranges.columns("t")] == [6], "the newest one always stays"


def test_only_what_is_new_is_returned() -> None:
    made = KeyspaceHistory()
    made.add(1, {"t": column()})
    made.add(2, {"u": column()})
    made.add(3, {"t": column()})
    assert [at for at, _ in made.columns("t", after=1)] == [3]
    assert list(made.columns("nothing")) == []
