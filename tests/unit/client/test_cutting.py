"""Cutting by segment: every row lands once, where its partition goes, in order; and routes that change."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq.cutting import Piece, Route, cut
from smq.delivery import Fate
from smq_core.keyspace import KeyRange
from smq_core.model import Durability, Phase, Replica, Segment

PARTITIONS = 16


def segment(start: int, stop: int, number: int = 0) -> Segment:
    replicas = (Replica("b", "i", "a:1"),)
    name = f"t-{start}-{stop}-{number}"
    return Segment(name, number, KeyRange(start, stop), Phase.OPEN, Durability.REPLICATED, replicas)


@st.composite
def covers(draw: st.DrawFn, number: int = 0) -> list[Segment]:
    edges = sorted({0, PARTITIONS, *draw(st.lists(st.integers(1, PARTITIONS - 1), max_size=5))})
    return [segment(a, b, number) for a, b in itertools.pairwise(edges)]


def piece_of(places: list[int]) -> Piece:
    batch = pa.record_batch({"partition": pa.array(places, pa.int32()), "row": pa.array(range(len(places)))})
    return Piece(batch, Fate(len(places), threading.Lock()), None, cost=1000, born=0.0)


@settings(max_examples=300, deadline=None)
@given(covers(), covers(1), st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=40))
def test_every_row_lands_once_in_its_segment_and_in_order_also_when_cut_again(
    first: list[Segment], second: list[Segment], places: list[int]
) -> None:
    whole = piece_of(places)
    parts = cut(whole, np.array(places, np.int32), Route.of(first, PARTITIONS))
    again = [
        two for _, part in parts for two in cut(part, part.batch.column(0).to_numpy(), Route.of(second, PARTITIONS))
    ]
    for cuts in (parts, again):
        rows: list[int] = []
        for target, part in cuts:
            own = part.batch.column("row").to_pylist()
            assert own == sorted(own), "the order within a segment is kept"
            assert own == (list(range(len(places))) if part.rows is None else part.rows.tolist())
            assert all(places[row] in target.range for row in own)
            rows += own
        assert sorted(rows) == list(range(len(places)))
        assert sum(part.cost for _, part in cuts) == 1000, "the budget gets back what was taken"


def test_one_segment_is_not_copied() -> None:
    whole = piece_of([1, 2, 3])
    places = np.array([1, 2, 3], np.int32)
    assert cut(whole, places, Route.of([segment(0, 16)], PARTITIONS))[0][1] is whole
    assert cut(whole, places, Route.of([segment(0, 8), segment(8, 16)], PARTITIONS))[0][1] is whole


def test_a_route_must_cover_the_ring() -> None:
    with pytest.raises(ValueError, match="cover"):
        Route.of([segment(0, 8)], PARTITIONS)


@settings(max_examples=300, deadline=None)
@given(covers(), covers(1), st.data())
def test_replacing_segments_one_by_one_ends_at_the_new_route(
    old: list[Segment], new: list[Segment], data: st.DataObject
) -> None:
    """In any order; and each step moves the partitions of that segment only."""
    target = Route.of(new, PARTITIONS)
    route = Route.of(old, PARTITIONS)
    for leaving in data.draw(st.permutations(old)):
        before = [route.to(p).name for p in range(PARTITIONS)]
        route = route.replaced(leaving, target)
        for p in range(PARTITIONS):
            expected = target.to(p).name if before[p] == leaving.name else before[p]
            assert route.to(p).name == expected
    assert {s.name for s in route.segments} == {s.name for s in new}
    assert route.replaced(segment(0, 16, 9), target) is route
