"""Decides how many brokers there should be. Scales out at once, and in slowly, one drained broker at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from smq_core.model.entities import SECOND, Micros
from smq_core.scaling.placement import BrokerView

SCALE_IN_AFTER: Micros = 120 * SECOND
# The highest share of a broker's capacity to use, in traffic or in memory.
MAX_UTILIZATION = 0.6
# A broker that was added for memory has to start and take its share, before the effect is known.
MEMORY_SCALE_OUT_COOLDOWN: Micros = 60 * SECOND
# A broker is removed only if the remaining ones then stay below this share.
SCALE_IN_UTILIZATION = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """The bounds of the number of brokers, and the capacity of one, in the units of ``FleetLoad``.

    ``scale_in_after`` is how long one broker fewer must have been enough; None means ``SCALE_IN_AFTER``.
    """

    minimum: int
    maximum: int
    bytes_per_second: float = 100 * 2**20
    batches_per_second: float = 8_000
    scale_in_after: Micros | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.maximum:
            raise ValueError(f"brokers: need 1 <= min <= max, not min {self.minimum}, max {self.maximum}")


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """The load of all brokers together. A follower's load counts half, because it does about half the work."""

    bytes_per_second: float = 0.0
    batches_per_second: float = 0.0
    memory_share: float = 0.0
    """The tails of the fullest broker, as a share of its memory limit."""


@dataclass(frozen=True, slots=True)
class DesiredBrokers:
    brokers: int
    because: str


@dataclass(slots=True)
class FleetScaler:
    """Remembers since when fewer brokers would be enough, and when memory last required one."""

    low_since: Micros | None = None
    memory_at: Micros | None = None

    def desired_brokers(
        self, policy: FleetPolicy, current: int, load: FleetLoad, replicas: int, now: Micros
    ) -> DesiredBrokers:
        """The desired number of brokers. ``replicas`` is the highest number of replicas of any topic.

        ``current`` counts brokers that run or start, without draining ones.
        """
        floor = min(max(policy.minimum, replicas), policy.maximum)
        share = max(
            load.bytes_per_second / policy.bytes_per_second, load.batches_per_second / policy.batches_per_second
        )
        need = math.ceil(share / MAX_UTILIZATION)
        short_of_memory = load.memory_share > MAX_UTILIZATION
        if short_of_memory and (self.memory_at is None or now - self.memory_at >= MEMORY_SCALE_OUT_COOLDOWN):
            need = max(need, current + 1)
            self.memory_at = now
        if need > current and current < policy.maximum:
            self.low_since = None
            more = min(max(need, floor), policy.maximum)
            return DesiredBrokers(more, f"traffic for {share:.1f} brokers, memory at {load.memory_share:.0%}")
        if current < floor:
            return DesiredBrokers(floor, f"at least {floor} brokers")
        fewer = current - 1
        enough = (
            fewer >= floor and share / max(fewer, 1) < SCALE_IN_UTILIZATION and load.memory_share < SCALE_IN_UTILIZATION
        )
        if not enough and current <= policy.maximum:
            self.low_since = None
            return DesiredBrokers(current, "")
        if self.low_since is None:
            self.low_since = now
        wait = SCALE_IN_AFTER if policy.scale_in_after is None else policy.scale_in_after
        if now - self.low_since < wait and current <= policy.maximum:
            return DesiredBrokers(current, "")
        self.low_since = None
        return DesiredBrokers(fewer, f"traffic for {share:.1f} brokers for {wait // SECOND} s")


def choose_broker_to_drain(brokers: Sequence[BrokerView]) -> BrokerView | None:
    """The broker to remove: one that drains already, or else the least loaded one."""
    draining = [b for b in brokers if b.draining and not b.liveness.terminated]
    if draining:
        return draining[0]
    alive = [b for b in brokers if b.accepts_segments]
    return min(alive, key=lambda b: (b.segments, b.load, b.replica.broker), default=None)
