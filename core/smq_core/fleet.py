"""How many brokers there should be: out at once, in slowly, one at a time, drained before they go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from smq_core.model import SECOND
from smq_core.placement import BrokerView
from smq_core.sealing import Liveness

SCALE_IN_AFTER = 120 * SECOND
FULL = 0.6
"""A broker should not be filled beyond this share of what it can carry, in traffic or in memory."""
MEMORY_AGAIN_AFTER = 60 * SECOND
"""A broker that memory asked for has to start and to take its share, before it is known whether one is enough."""
EMPTY = 0.4
"""One broker fewer must leave the rest below this share."""


@dataclass(frozen=True, slots=True)
class FleetPolicy:
    """Bounds of the number of brokers, and what one of them carries (bytes per second, as ``FleetLoad`` counts).

    ``scale_in_after``: for so long (microseconds) one broker fewer must have been enough; None: ``SCALE_IN_AFTER``.
    """

    minimum: int
    maximum: int
    bytes_per_second: float = 100 * 2**20
    batches_per_second: float = 8_000
    scale_in_after: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.maximum:
            raise ValueError(f"brokers: need 1 <= min <= max, not min {self.minimum}, max {self.maximum}")


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """What all brokers carry together; what a follower takes counts half, because that is about its work."""

    bytes_per_second: float = 0.0
    batches_per_second: float = 0.0
    memory_share: float = 0.0
    """The fullest broker's tails, as a share of its limit."""


@dataclass(frozen=True, slots=True)
class Wanted:
    brokers: int
    because: str


@dataclass(slots=True)
class Fleet:
    """Remembers since when fewer brokers would do, and when memory last asked for one. Times are microseconds."""

    low_since: int | None = None
    memory_at: int | None = None

    def wanted(self, policy: FleetPolicy, have: int, load: FleetLoad, replicas: int, now: int) -> Wanted:
        """How many brokers there should be now; ``replicas``: the most that any topic wants.

        ``have`` are those that run or start, without those that drain.
        """
        floor = min(max(policy.minimum, replicas), policy.maximum)
        share = max(
            load.bytes_per_second / policy.bytes_per_second, load.batches_per_second / policy.batches_per_second
        )
        need = math.ceil(share / FULL)
        short_of_memory = load.memory_share > FULL
        if short_of_memory and (self.memory_at is None or now - self.memory_at >= MEMORY_AGAIN_AFTER):
            need = max(need, have + 1)
            self.memory_at = now
        if need > have and have < policy.maximum:
            self.low_since = None
            more = min(max(need, floor), policy.maximum)
            return Wanted(more, f"traffic for {share:.1f} brokers, memory at {load.memory_share:.0%}")
        if have < floor:
            return Wanted(floor, f"at least {floor} brokers")
        fewer = have - 1
        enough = fewer >= floor and share / max(fewer, 1) < EMPTY and load.memory_share < EMPTY
        if not enough and have <= policy.maximum:
            self.low_since = None
            return Wanted(have, "")
        if self.low_since is None:
            self.low_since = now
        wait = SCALE_IN_AFTER if policy.scale_in_after is None else policy.scale_in_after
        if now - self.low_since < wait and have <= policy.maximum:
            return Wanted(have, "")
        self.low_since = None
        return Wanted(fewer, f"traffic for {share:.1f} brokers for {wait // SECOND} s")


def to_drain(brokers: Sequence[BrokerView]) -> BrokerView | None:
    """The broker that goes when one must: the one with the least on it; one that drains already goes on."""
    draining = [b for b in brokers if b.draining and b.liveness is not Liveness.GONE]
    if draining:
        return draining[0]
    alive = [b for b in brokers if b.takes_segments]
    return min(alive, key=lambda b: (b.segments, b.load, b.replica.broker), default=None)
