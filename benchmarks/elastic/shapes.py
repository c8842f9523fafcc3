"""Load shapes: pure functions from time to the messages per second of each partition.

``make(name, ...)`` builds one. Rates are in units of ``target`` (the load that one segment should carry), so a shape
means the same for any topic. The seed decides where keys lie on the ring; nothing else is random.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from smq_core.model.keyspace import MAX_PARTITIONS

# Messages per second, of shape (partitions,).
Rates = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """``at(second)`` is the load at that moment; ``seconds`` how long a run of it should be."""

    name: str
    about: str
    seconds: int
    partitions: int
    target: float
    at: Callable[[float], Rates]

    def total(self, second: float) -> float:
        """Messages per second of the whole topic."""
        return float(self.at(second).sum())

    def first_over_target(self) -> int | None:
        """The first second in which the topic as a whole offers more than one segment's target, or None."""
        return next((s for s in range(self.seconds) if self.total(s) > self.target), None)


def stretched(shape: Shape, faster: float) -> Shape:
    """The same shape, ``faster`` times as fast."""
    return replace(shape, seconds=round(shape.seconds / faster), at=lambda t: shape.at(t * faster))


def after(shape: Shape, rest: int, seconds: int) -> Shape:
    """First ``rest`` seconds of what is there at its beginning, then the shape for ``seconds``."""
    return replace(shape, seconds=rest + seconds, at=lambda t: shape.at(max(0.0, t - rest)))


def make(name: str, *, partitions: int = 1024, target: float = 50_000.0, seed: int = 0) -> Shape:
    """The shape of that name. Raises KeyError for a name that is not in ``SHAPES``."""
    about, seconds, build = SHAPES[name]
    if name == "ten-thousand":
        partitions = MAX_PARTITIONS
    return Shape(name, about, seconds, partitions, target, build(partitions, target, np.random.default_rng(seed)))


Build = Callable[[int, float, np.random.Generator], Callable[[float], Rates]]


def _even(partitions: int) -> Rates:
    return np.full(partitions, 1.0 / partitions)


def _scaled(level: Callable[[float], float]) -> Build:
    """A shape that is even over the ring, ``level`` targets in all."""

    def build(partitions: int, target: float, rng: np.random.Generator) -> Callable[[float], Rates]:
        share = _even(partitions) * target
        return lambda t: share * level(t)

    return build


def _flood(t: float) -> float:
    return 7.5 if 60 <= t < 360 else 0.15


def _long_flood(t: float) -> float:
    return 7.5 if 60 <= t < 3660 else 0.15


def _ramp(t: float) -> float:
    return 0.2 + 7.8 * min(1.0, max(0.0, t - 60) / 600)


def _diurnal(t: float) -> float:
    return 3.0 - 2.8 * math.cos(2 * math.pi * t / 86_400)


def _onoff(t: float) -> float:
    return 6.0 if t % 120 < 60 else 0.1


def _backfill(partitions: int, target: float, rng: np.random.Generator) -> Callable[[float], Rates]:
    """Online traffic over the whole ring; a backfill sweeps keys in hash order, an eighth of the ring at a time."""
    online = _even(partitions) * target * 0.6
    width = max(1, partitions // 8)

    def at(t: float) -> Rates:
        load = online.copy()
        if 120 <= t < 920:
            start = int((t - 120) / 100) * width
            load[start : start + width] += 4.0 * target / width
        return load

    return at


def _hot_key(partitions: int, target: float, rng: np.random.Generator) -> Callable[[float], Rates]:
    base = _even(partitions) * target * 0.5
    hot = int(rng.integers(partitions))

    def at(t: float) -> Rates:
        load = base.copy()
        load[hot] += target * (3.0 if 60 <= t < 600 else 0.0)
        return load

    return at


def _hot_range(partitions: int, target: float, rng: np.random.Generator) -> Callable[[float], Rates]:
    """From the second minute on a bell of load, a twelfth of the ring wide, moves around it in 20 minutes."""
    base = _even(partitions) * target * 0.5
    place = (np.arange(partitions) + 0.5) / partitions

    def at(t: float) -> Rates:
        if t < 60:
            return base
        away = np.abs(place - (0.1 + (t - 60) / 1200) % 1.0)
        bell = np.exp(-0.5 * (np.minimum(away, 1 - away) / 0.02) ** 2)
        return base + bell / bell.sum() * target * 4.0

    return at


def _zipf(partitions: int, target: float, rng: np.random.Generator) -> Callable[[float], Rates]:
    """100,000 keys, the k-th as frequent as k ** -1.1, spread over the ring by chance; five targets in all."""
    weights = 1.0 / np.arange(1, 100_001) ** 1.1
    share = np.bincount(rng.integers(partitions, size=len(weights)), weights, minlength=partitions) / weights.sum()
    load = share * target * 5.0
    return lambda t: load if t >= 30 else load * 0.02


def _wide(partitions: int, target: float, rng: np.random.Generator) -> Callable[[float], Rates]:
    """Uneven from partition to partition; after 20 seconds a hundredth of the ring gets thirty times as much."""
    share = rng.gamma(4.0, size=partitions)
    load = share / share.sum() * target * 500.0
    hot = load.copy()
    hot[partitions // 3 : partitions // 3 + partitions // 100] *= 30
    return lambda t: load if t < 20 else hot


# Name: what it is, seconds of a run, how it is built.
SHAPES: dict[str, tuple[str, int, Build]] = {
    "steady": ("half a target, for ever", 1_800, _scaled(lambda t: 0.5)),
    "ramp": ("from 0.2 to 8 targets in ten minutes", 1_200, _scaled(_ramp)),
    "flood": ("0.15 targets, 7.5 for five minutes, 0.15 again: fifty times", 3_600, _scaled(_flood)),
    "long-flood": ("the same flood for an hour", 5_400, _scaled(_long_flood)),
    "diurnal": ("a day of 0.2 to 5.8 targets", 86_400, _scaled(_diurnal)),
    "hot-key": ("half a target, and one key with 3", 1_200, _hot_key),
    "hot-range": ("half a target, and a narrow bell of 4 that goes around the ring", 1_260, _hot_range),
    "on-off": ("6 targets for a minute, 0.1 for a minute", 1_800, _scaled(_onoff)),
    "backfill": ("0.6 targets online; a backfill of 4 sweeps the ring", 1_800, _backfill),
    "zipf": ("5 targets of Zipf(1.1) keys", 900, _zipf),
    "ten-thousand": ("500 targets on 10,000 segments, and 30 times as much on a hundredth of them", 60, _wide),
}
