"""Sets of segment numbers as sorted ranges: what retention has removed, in a few bytes for a topic's whole life.

Segments go oldest first, so that their numbers soon make one range: ``((0, 5312), (5314, 5316))``.
"""

from __future__ import annotations

from collections.abc import Iterable

Numbers = tuple[tuple[int, int], ...]
"""Half-open ranges ``(start, stop)``, sorted, neither touching nor overlapping."""

NONE: Numbers = ()


def contains(numbers: Numbers, number: int) -> bool:
    """Whether the number is in one of the ranges."""
    return any(start <= number < stop for start, stop in numbers)


def union(*sets: Numbers) -> Numbers:
    """Every number that is in any of the sets."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(part for numbers in sets for part in numbers):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return tuple(found)


def of(numbers: Iterable[int]) -> Numbers:
    """These numbers, in ranges."""
    return union(tuple((number, number + 1) for number in numbers))


def count(numbers: Numbers) -> int:
    """How many numbers are in the ranges."""
    return sum(stop - start for start, stop in numbers)
