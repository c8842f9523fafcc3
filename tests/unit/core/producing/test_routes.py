"""Routes of a producer: each partition has one segment, also while segments are replaced one by one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq_core.model.entities import Durability, Phase, Replica, Segment
from smq_core.model.keyspace import KeyRange
from smq_core.producing.routes import Route, spans_of

PARTITIONS = 16


def segment(start: int, stop: int, number: int = 0) -> Segment:
    return Segment(
        name=f"t-{start}-{stop}-{number}",
        number=number,
        range=KeyRange(start, stop),
        phase=Phase.OPEN,
        durability=Durability.REPLICATED,
        replicas=(Replica("b", "i", "a:1"),),
    )


@st.composite
def full_layouts(draw: st.DrawFn, number: int = 0) -> list[Segment]:
    edges = sorted({0, PARTITIONS, *draw(st.lists(st.integers(1, PARTITIONS - 1), max_size=5))})
    return draw(st.permutations([segment(a, b, number) for a, b in itertools.pairwise(edges)]))


def names(route: Route) -> list[str]:
    """The segment of each partition."""
    found = [span.segment.name for span in route.spans for _ in range(span.start, span.stop)]
    assert [span.start for span in route.spans] == [0, *(span.stop for span in route.spans)][:-1]
    assert all(a.segment.name != b.segment.name for a, b in itertools.pairwise(route.spans)), "neighbours are joined"
    assert len(found) == PARTITIONS
    return found


@pytest.mark.parametrize(
    "segments",
    [[segment(0, 8)], [segment(0, 8), segment(9, 16)], [segment(0, 9), segment(8, 16)], [segment(1, 16)]],
    ids=["its end", "a gap", "twice", "its start"],
)
def test_a_route_must_cover_the_ring_once(segments: list[Segment]) -> None:
    with pytest.raises(ValueError, match="cover"):
        Route.of(segments, PARTITIONS)


@settings(max_examples=300, deadline=None)
@given(full_layouts(), full_layouts(1), st.data())
def test_replacing_segments_one_by_one_ends_at_the_new_route(
    old: list[Segment], new: list[Segment], data: st.DataObject
) -> None:
    """In any order; and each step moves the partitions of that segment only."""
    target, route = Route.of(new, PARTITIONS), Route.of(old, PARTITIONS)
    expected = names(target)
    for leaving in data.draw(st.permutations(old)):
        before = names(route)
        route = route.replaced(leaving, target.spans)
        moved = [expected[p] if before[p] == leaving.name else before[p] for p in range(PARTITIONS)]
        assert names(route) == moved
    assert {s.name for s in route.segments} == {s.name for s in new}
    assert route.replaced(segment(0, 16, 9), target.spans) == route


@given(full_layouts(), st.integers(0, PARTITIONS - 1), st.integers(1, PARTITIONS))
def test_partitions_that_nothing_replaces_stay(old: list[Segment], start: int, length: int) -> None:
    """A broker may know only some of the successors."""
    by = segment(start, min(PARTITIONS, start + length), 1)
    for leaving in old:
        route = Route.of(old, PARTITIONS)
        before = names(route)
        assert names(route.replaced(leaving, spans_of([by]))) == [
            by.name if before[p] == leaving.name and p in by.range else before[p] for p in range(PARTITIONS)
        ]
