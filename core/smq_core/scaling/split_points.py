"""Computes where to split a range, from a histogram of its load.

A histogram has n equal slices: partition ``p`` (counted from the range's start) of ``size`` is in slice
``p * n // size``. The load within a slice is unknown, so boundaries fall between slices. A slice with too much load
becomes a separate segment, whose histogram is n times finer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from smq_core.model.keyspace import KeyRange

# Even load, in targets, that is added to the histogram, so that a small measured load does not decide alone.
EVEN_SHARE = 0.1
# Bisection steps in the search for the fullest part's load.
SEARCH_STEPS = 12


def split_points_by_load(
    whole: KeyRange, shape: Sequence[float], level: float, fill: float, max_parts: int
) -> list[int]:
    """The boundaries of the fewest parts, at most ``max_parts``, with a load of at most ``fill`` each.

    ``level`` is the load of the whole range. A slice that alone exceeds ``fill`` becomes a part by itself. Among all
    splits into that number of parts, this one minimises the load of the largest part (single slices aside). Empty if
    there is nothing to split.
    """
    if min(max_parts, len(whole)) < 2:
        return []
    if len(shape) > len(whole):
        shape = per_partition(len(whole), shape)
    edges = slice_edges(whole, len(shape) if any(shape) else min(64, len(whole)))
    weights = _scaled(shape, level) if any(shape) else [level / (len(edges) - 1)] * (len(edges) - 1)
    least = len(_groups(weights, fill))
    parts = min(least, max_parts)
    low, high = 0.0, fill if least <= max_parts else 2 * level  # with all of it allowed there is one part
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        if len(_groups(weights, middle)) <= parts:
            high = middle
        else:
            low = middle
    return [edges[i] for i in _groups(weights, high)[1:]] or even_split_points(whole, shape, level, 2)


def even_split_points(whole: KeyRange, shape: Sequence[float], level: float, parts: int) -> list[int]:
    """The boundaries of exactly ``parts`` parts of about equal load, each with at least one partition.

    ``shape`` has one weight for each slice, ``level`` is the load of the whole; load within a slice counts as even.
    """
    size = len(whole)
    weights = [w + EVEN_SHARE / size for w in per_partition(size, _scaled(shape, level))]
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
    """Spreads the weight of each slice evenly over its partitions."""
    weights = [0.0] * size
    n = len(shape)
    if n > size:
        for i, weight in enumerate(shape):
            weights[i * size // n] += weight
        return weights
    for (start, stop), weight in zip(pairwise(slice_edges(KeyRange(0, size), n)), shape, strict=True):
        for partition in range(start, stop):
            weights[partition] = weight / (stop - start)
    return weights


def slice_edges(whole: KeyRange, slices: int) -> list[int]:
    """The first partition of each slice, and the end of the last: slices + 1 numbers."""
    size = len(whole)
    return [whole.start + -(-i * size // slices) for i in range(slices + 1)] if slices else []


def _groups(weights: Sequence[float], limit: float) -> list[int]:
    """The first index of each group, if neighbours share a group as long as their sum is within ``limit``."""
    begins = [0]
    filled = 0.0
    for i, weight in enumerate(weights):
        if i and filled + weight > limit:
            begins.append(i)
            filled = 0.0
        filled += weight
    return begins


def _scaled(shape: Sequence[float], level: float) -> list[float]:
    total = sum(shape)
    return [weight * level / total for weight in shape] if total > 0 else []
