"""Ranges of the hash ring: cutting, uniting and covering say the same thing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smq_core.model.keyspace import (
    FEW_KEYS,
    KeyRange,
    covers_exactly,
    merge_ranges,
    partition_of,
    partitions_of,
    split_evenly,
)


@st.composite
def ranges(draw: st.DrawFn) -> KeyRange:
    start = draw(st.integers(0, 1000))
    return KeyRange(start, start + draw(st.integers(1, 200)))


@st.composite
def cuts(draw: st.DrawFn) -> tuple[KeyRange, list[int]]:
    whole = draw(ranges())
    return whole, sorted(draw(st.sets(st.integers(whole.start + 1, whole.stop), max_size=8)) - {whole.stop})


@given(cuts(), st.randoms())
def test_the_parts_of_a_cut_cover_it_exactly_in_any_order(split_at, random):
    whole, boundaries = split_at
    parts = whole.split_at(boundaries)
    assert len(parts) == len(boundaries) + 1 and sum(map(len, parts)) == len(whole)
    random.shuffle(parts)
    assert covers_exactly(parts, whole)
    assert merge_ranges(parts) == whole


@given(cuts(), st.data())
def test_a_missing_or_doubled_part_is_no_cover(split_at, data):
    whole, boundaries = split_at
    parts = whole.split_at(boundaries)
    at = data.draw(st.integers(0, len(parts) - 1))
    assert not covers_exactly(parts[:at] + parts[at + 1 :], whole)
    assert not covers_exactly([*parts, parts[at]], whole)


@given(ranges(), st.integers(1, 64))
def test_an_even_split_is_even(whole, parts):
    if parts > len(whole):
        with pytest.raises(ValueError):
            split_evenly(whole, parts)
        return
    made = split_evenly(whole, parts)
    assert covers_exactly(made, whole) and len(made) == parts
    assert max(map(len, made)) - min(map(len, made)) <= 1


@given(ranges(), ranges())
def test_ranges_overlap_when_they_share_a_partition(one, other):
    shared = set(range(one.start, one.stop)) & set(range(other.start, other.stop))
    assert one.overlaps(other) == other.overlaps(one) == bool(shared)
    assert all(partition in one and partition in other for partition in shared)


@given(ranges(), ranges())
def test_only_neighbours_unite(one, other):
    if one.stop == other.start or other.stop == one.start:
        assert len(merge_ranges([one, other])) == len(one) + len(other)
    else:
        with pytest.raises(ValueError):
            merge_ranges([one, other])


@given(st.lists(st.binary(max_size=20), max_size=50), st.integers(1, 65_536))
def test_many_keys_go_where_each_goes(keys, partitions):
    found = partitions_of(keys, partitions)
    assert found.dtype == np.int32
    assert found.tolist() == [partition_of(key, partitions) for key in keys]
    some = keys or [b""]
    more = some * (FEW_KEYS // len(some) + 1)  # numpy computes these
    assert partitions_of(more, partitions).tolist() == [partition_of(key, partitions) for key in more]
    assert all(0 <= p < partitions for p in found)


@given(st.integers(-5, 5), st.integers(-5, 5))
def test_a_range_is_never_empty_or_negative(start, stop):
    if 0 <= start < stop:
        assert len(KeyRange(start, stop)) == stop - start
    else:
        with pytest.raises(ValueError):
            KeyRange(start, stop)
