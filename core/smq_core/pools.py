"""Which pool of brokers grows, and which shrinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pool:
    """Brokers of one sort. ``wanted`` are those that shall run now."""

    name: str
    wanted: int
    minimum: int
    maximum: int


def spread(pools: Sequence[Pool], count: int, shrink_first: str | None = None) -> Mapping[str, int]:
    """How many brokers of each pool there shall be, ``count`` in all, as near as the bounds let it come.

    Pools outside of their bounds are brought back first. Then the least filled pool grows (by its maximum), and the
    fullest shrinks, ``shrink_first`` (the pool of the broker that is to go) before all others.
    """
    bounds = {pool.name: pool for pool in pools}
    given = {pool.name: min(max(pool.wanted, pool.minimum), pool.maximum) for pool in pools}

    def filled(name: str) -> tuple[float, str]:
        return given[name] / max(bounds[name].maximum, 1), name

    while sum(given.values()) < count:
        free = [name for name in given if given[name] < bounds[name].maximum]
        if not free:
            break
        given[min(free, key=filled)] += 1
    while sum(given.values()) > count:
        spare = [name for name in given if given[name] > bounds[name].minimum]
        if not spare:
            break
        first = shrink_first if shrink_first in spare else max(spare, key=filled)
        given[first] -= 1
    return given
