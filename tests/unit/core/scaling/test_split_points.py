from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.model.keyspace import KeyRange
from smq_core.scaling.split_points import even_split_points, per_partition, slice_edges, split_points_by_load


@given(st.integers(0, 1_000), st.integers(1, 2_000), st.integers(1, 64))
def test_edges_are_where_brokers_count(start: int, size: int, slices: int) -> None:
    """A broker counts partition p of a range in slice p * slices // size."""
    slices = min(slices, size)
    edges = slice_edges(KeyRange(start, start + size), slices)
    for i in range(slices):
        inside = range(edges[i] - start, edges[i + 1] - start)
        assert {p * slices // size for p in inside} == {i}
    assert (edges[0], edges[-1]) == (start, start + size)


def test_a_hot_partition_is_found_in_a_range_of_any_size() -> None:
    """100 partitions in 64 slices: the load of a slice must not be laid on its neighbours."""
    size, hot = 100, 37
    counts = [0.0] * 64
    counts[hot * 64 // size] = 1.0
    loaded = [p for p, w in enumerate(per_partition(size, counts)) if w]
    assert hot in loaded and len(loaded) <= 2
    parts = KeyRange(0, size).split_at(split_points_by_load(KeyRange(0, size), counts, 3.0, 0.6, 16))
    assert next(p for p in parts if hot in p) == KeyRange(loaded[0], loaded[-1] + 1)


def test_cold_ranges_are_not_cut_because_their_neighbour_is_hot() -> None:
    shape = [0.0] * 64
    shape[63] = 1.0
    assert split_points_by_load(KeyRange(0, 1024), shape, 20.0, 0.6, 16) == [1008]


def test_without_load_the_parts_are_equally_wide() -> None:
    assert even_split_points(KeyRange(0, 1024), (), 0.0, 4) == [256, 512, 768]
    nearly_nothing = (0,) * 63 + (1,)
    cuts = even_split_points(KeyRange(0, 1024), nearly_nothing, 0.0001, 4)
    assert all(abs(split_at - even) <= 1 for split_at, even in zip(cuts, [256, 512, 768], strict=True))


def test_few_parts_are_chosen_where_they_help_most() -> None:
    assert split_points_by_load(KeyRange(0, 64), (1,) * 64, 10.0, 0.6, 2) == [32]
    assert split_points_by_load(KeyRange(0, 64), (1,) * 64, 10.0, 0.6, 1) == []


@pytest.mark.parametrize("slices", [1, 3, 15, 17, 64, 1000])
def test_a_histogram_of_any_length_gives_boundaries_inside_the_range(slices: int) -> None:
    whole = KeyRange(100, 116)
    boundaries = split_points_by_load(whole, [1.0] * slices, 20.0, 0.6, 16)
    assert boundaries == sorted(set(boundaries)) and all(100 < b < 116 for b in boundaries)
    whole.split_at(boundaries)
