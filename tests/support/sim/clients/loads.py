"""Loads of elastic histories: the shapes of ``benchmarks.elastic``, much faster and with a few messages per second.

The seed alone determines a load: how many messages all producers together send at which moment, and to which
partitions.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from random import Random

import numpy as np

from benchmarks.elastic.shapes import Shape, make, stretched
from smq_core.model.keyspace import partition_of
from support.sim.engine.world import SECOND

# The target in messages per second of one segment.
TARGET = 4.0

# The shapes, and their speed relative to the model. ``many`` has as many segments as a history can handle.
FASTER = {
    "steady": 180,
    "ramp": 60,
    "flood": 30,
    "diurnal": 6_000,
    "hot-key": 50,
    "hot-range": 84,
    "on-off": 20,
    "backfill": 65,
    "zipf": 65,
    "many": 1,
}
LONGEST = 15.0


@dataclass(slots=True)
class ElasticLoad:
    """``seconds`` is the duration of the load."""

    name: str
    shape: Shape
    seconds: float
    _known: dict[int, list[float]] = field(default_factory=dict)

    def offered(self, second: float) -> float:
        """Messages per second of all producers at that moment."""
        return self._cumulated(second)[-1] if second < self.seconds else 0.0

    def partitions(self, dice: Random, now: int, share: float) -> list[int]:
        """The partitions of one producer's messages at ``now`` (µs). ``share`` is its share of the load, in seconds."""
        weights = self._cumulated(now / SECOND)
        number = weights[-1] * share * (0.5 + dice.random())
        number = int(number) + (dice.random() < number % 1)
        return [bisect_right(weights, dice.random() * weights[-1]) for _ in range(min(number, 20))]

    def _cumulated(self, second: float) -> list[float]:
        """In steps of half a second."""
        half = int(second * 2)
        if half not in self._known:
            self._known[half] = list(accumulate(self.shape.at(half / 2).tolist()))
        return self._known[half]


def draw(dice: Random, partitions: int) -> ElasticLoad:
    name = dice.choice(list(FASTER))
    seed = dice.randrange(1 << 30)
    shape = _many(partitions, seed) if name == "many" else make(name, partitions=partitions, target=TARGET, seed=seed)
    shape = stretched(shape, FASTER[name])
    return ElasticLoad(name, shape, min(LONGEST, shape.seconds))


def _many(partitions: int, seed: int) -> Shape:
    """A small load on each of many segments, then a large one on a part of the ring."""
    base = np.random.default_rng(seed).gamma(4.0, size=partitions)
    base *= TARGET * 2 / base.sum()
    hot = base.copy()
    start = seed % (partitions * 7 // 8)
    hot[start : start + partitions // 8] *= 12
    return Shape("many", "", 14, partitions, TARGET, lambda t: base if t < 4 or t > 10 else hot)


@cache
def keys(partitions: int) -> list[str]:
    """A key for each partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        key = f"k{number}"
        found.setdefault(partition_of(key.encode(), partitions), key)
        number += 1
    return [found[p] for p in range(partitions)]
