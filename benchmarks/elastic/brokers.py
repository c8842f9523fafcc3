"""The model's brokers: the capacity of each, and how Fleet adds and removes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from smq_core.model.entities import SECOND, Layout, Replica
from smq_core.scaling.broker_fleet import FleetLoad, FleetPolicy, FleetScaler, choose_broker_to_drain
from smq_core.scaling.placement import BrokerView
from smq_core.scaling.rebalancing import FOLLOWER_WEIGHT


@dataclass(slots=True)
class ModelBroker:
    """One broker process. Times are microseconds."""

    replica: Replica
    ready_at: int
    draining: bool = False


@dataclass
class ModelFleet:
    """Starts with the policy's minimum, ready at once. ``start_delay``: from the decision to the first report."""

    policy: FleetPolicy
    replicas: int
    start_delay: int = 20 * SECOND
    zones: int = 3
    members: dict[str, ModelBroker] = field(default_factory=dict)
    wanted: int = 0
    _fleet: FleetScaler = field(default_factory=FleetScaler)
    _made: int = 0

    def __post_init__(self) -> None:
        self.desired_brokers = self.policy.minimum
        for _ in range(self.policy.minimum):
            self._start(-self.start_delay)

    def _start(self, now: int) -> None:
        number = self._made
        self._made += 1
        replica = Replica(f"broker-{number}", f"incarnation-{number}", f"h{number}:1")
        self.members[replica.incarnation] = ModelBroker(replica, now + self.start_delay)

    def ready(self, now: int) -> list[ModelBroker]:
        return [m for m in self.members.values() if m.ready_at <= now]

    def views(self, layout: Layout | None, now: int) -> dict[str, BrokerView]:
        """The brokers as the leader sees them; a segment's primary counts 2, a follower 1, as in the leader process."""
        held: Counter[str] = Counter()
        for segment in layout.segments if layout is not None else ():
            if not segment.successors:
                for rank, replica in enumerate(segment.replicas):
                    held[replica.incarnation] += 2 if rank == 0 else 1
        return {
            m.replica.incarnation: BrokerView(
                replica=m.replica,
                draining=m.draining,
                zone=f"zone-{int(m.replica.broker.rpartition('-')[2]) % self.zones}",
                segments=held[m.replica.incarnation],
            )
            for m in self.ready(now)
        }

    def follow(self, load: FleetLoad, layout: Layout | None, now: int) -> None:
        """What an operator does each second: start what is missing; drain one, and end it when it is empty."""
        staying = [m for m in self.members.values() if not m.draining]
        self.desired_brokers = self._fleet.desired_brokers(self.policy, len(staying), load, self.replicas, now).brokers
        for _ in range(self.desired_brokers - len(staying)):
            self._start(now)
        draining = [m for m in self.members.values() if m.draining]
        if self.desired_brokers < len(staying) and not draining:
            goes = choose_broker_to_drain(list(self.views(layout, now).values()))
            if goes is not None:
                self.members[goes.replica.incarnation].draining = True
        in_use = {r.incarnation for s in layout.segments for r in s.replicas} if layout is not None else set()
        for member in draining:
            if member.replica.incarnation not in in_use:
                del self.members[member.replica.incarnation]


@dataclass(frozen=True)
class Carried:
    """What went through in one tick: bytes by segment, and each broker's work in bytes."""

    segments: npt.NDArray[np.float64]
    brokers: dict[str, float]


def carry(
    demand: npt.NDArray[np.float64], replicas: list[tuple[Replica, ...]], capacity: Mapping[str, float]
) -> Carried:
    """Shares the brokers' capacities out among segments. Bytes per tick throughout; ``demand`` of shape (segments,).

    A segment is as fast as its slowest replica; a follower has half a primary's work. Three rounds of proportional
    shares: what one broker holds back is left to others at its peers.
    """
    names = list(capacity)
    at = {name: i for i, name in enumerate(names)}
    pairs = [
        (s, at[r.incarnation], 1.0 if rank == 0 else FOLLOWER_WEIGHT)
        for s, rs in enumerate(replicas)
        for rank, r in enumerate(rs)
        if r.incarnation in at
    ]
    segment = np.array([p[0] for p in pairs], np.int64)
    broker = np.array([p[1] for p in pairs], np.int64)
    work = np.array([p[2] for p in pairs])
    limits = np.array([capacity[n] for n in names])
    used = np.zeros(len(names))
    given = np.zeros(len(demand))
    for _ in range(3):
        desired = demand - given
        load = np.bincount(broker, work * desired[segment], minlength=len(names))
        share = np.minimum(1.0, np.maximum(0.0, limits - used) / np.maximum(load, 1e-9))
        factor = np.ones(len(demand))
        np.minimum.at(factor, segment, share[broker])
        more = desired * factor
        given += more
        used += np.bincount(broker, work * more[segment], minlength=len(names))
    return Carried(given, dict(zip(names, used.tolist(), strict=True)))
