"""Sets of segment numbers as sorted ranges. They record which segments retention has removed.

Retention removes the oldest segments first, so a few ranges suffice for a topic's whole life, for example
``((0, 5312), (5314, 5316))``.
"""

from __future__ import annotations

from collections.abc import Iterable

# Sorted half-open ranges ``(start, stop)`` that neither touch nor overlap.
IntervalSet = tuple[tuple[int, int], ...]

EMPTY: IntervalSet = ()


def contains(numbers: IntervalSet, number: int) -> bool:
    """Whether the set has the number."""
    return any(start <= number < stop for start, stop in numbers)


def union(*sets: IntervalSet) -> IntervalSet:
    """The union of the sets."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(part for numbers in sets for part in numbers):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return tuple(found)


def from_numbers(numbers: Iterable[int]) -> IntervalSet:
    """The set of these numbers."""
    return union(tuple((number, number + 1) for number in numbers))


def count(numbers: IntervalSet) -> int:
    """The count of numbers in the set."""
    return sum(stop - start for start, stop in numbers)
