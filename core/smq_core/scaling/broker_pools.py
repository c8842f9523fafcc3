"""Distributes a number of brokers over pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerPool:
    """Brokers of one kind. ``desired_count`` is how many should run now."""

    name: str
    desired_count: int
    minimum: int
    maximum: int


def distribute_brokers(pools: Sequence[BrokerPool], count: int, shrink_first: str | None = None) -> Mapping[str, int]:
    """The number of brokers of each pool, ``count`` in total, as far as the pools' bounds allow.

    Pools outside of their bounds are corrected first. Then the pool with the smallest share of its maximum grows, and
    the one with the largest share shrinks, but ``shrink_first`` (the pool of the broker to remove) before all others.
    """
    bounds = {pool.name: pool for pool in pools}
    assigned = {pool.name: min(max(pool.desired_count, pool.minimum), pool.maximum) for pool in pools}

    def fill_ratio(name: str) -> tuple[float, str]:
        return assigned[name] / max(bounds[name].maximum, 1), name

    while sum(assigned.values()) < count:
        growable = [name for name in assigned if assigned[name] < bounds[name].maximum]
        if not growable:
            break
        assigned[min(growable, key=fill_ratio)] += 1
    while sum(assigned.values()) > count:
        shrinkable = [name for name in assigned if assigned[name] > bounds[name].minimum]
        if not shrinkable:
            break
        first = shrink_first if shrink_first in shrinkable else max(shrinkable, key=fill_ratio)
        assigned[first] -= 1
    return assigned
