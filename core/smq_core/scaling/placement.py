"""Chooses the brokers of a segment: alive, not draining, on different nodes, least loaded, unchanged if possible."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from smq_core.model.entities import Durability, Liveness, Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """The leader's view of one incarnation.

    ``load`` is its load by all topics, in targets (``rebalancing.load_by_broker``), 0 if unknown. ``segments`` counts
    its replicas: 2 for each primary, 1 for each follower.
    """

    replica: Replica
    liveness: Liveness = Liveness.ALIVE
    draining: bool = False
    node: str = ""
    zone: str = ""
    load: float = 0.0
    segments: int = 0

    @property
    def accepts_segments(self) -> bool:
        return self.liveness is Liveness.ALIVE and not self.draining


@dataclass(frozen=True, slots=True)
class Placement:
    replicas: tuple[Replica, ...]
    durability: Durability


class Placer:
    """Places the segments of one planning pass. Each placement counts as load for the next ones."""

    def __init__(self, brokers: Mapping[str, BrokerView], avoid: Iterable[str] = ()) -> None:
        """Incarnations in ``avoid`` come last, because they refused a segment a moment ago."""
        self._brokers = brokers
        self._avoid = set(avoid)
        self._assigned: dict[str, int] = {}

    def place(
        self, wanted: Durability, copies: int, *, preferred: Sequence[Replica] = (), avoid: Sequence[Replica] = ()
    ) -> Placement | None:
        """The replicas of one segment, the primary first; None if there is no broker at all.

        With fewer than two brokers a ``Replicated`` segment is placed as ``Stored`` on one, so that acks wait for the
        filer and nothing is lost. ``preferred`` are the predecessor's replicas, which win among equally loaded ones.
        Brokers in ``avoid`` are used only if there are too few others, and then rather as followers.
        """
        broker_count = len(self._order)
        if not broker_count:
            return None
        copies = 1 if wanted is Durability.STORED else min(copies, broker_count)
        preferred_ids = {replica.incarnation for replica in preferred}
        excluded = {replica.incarnation for replica in avoid}
        chosen: list[BrokerView] = []
        while len(chosen) < copies:
            candidates = self._candidates(chosen, preferred_ids, excluded)
            chosen.append(min(candidates, key=lambda b: self._cost(b, chosen, preferred_ids, excluded)))
        replicas = tuple(b.replica for b in chosen)
        self.count(replicas)
        return Placement(replicas, wanted if copies > 1 else Durability.STORED)

    def count(self, replicas: Sequence[Replica]) -> None:
        """Counts one more segment on these replicas. A primary does about twice a follower's work."""
        for rank, replica in enumerate(replicas):
            name = replica.incarnation
            self._assigned[name] = self._assigned.get(name, 0) + (2 if rank == 0 else 1)
            if name in self._order:
                broker = self._brokers[name]
                heapq.heappush(self._heaps[broker.zone], (self._rank(broker), name))

    @cached_property
    def _order(self) -> dict[str, int]:
        """The brokers that take segments, in the order in which they were given."""
        return {name: i for i, (name, b) in enumerate(self._brokers.items()) if b.accepts_segments}

    @cached_property
    def _heaps(self) -> dict[str, list[tuple[_Rank, str]]]:
        """The brokers of each zone, the best first. Outdated entries are dropped when they are popped."""
        heaps: dict[str, list[tuple[_Rank, str]]] = {}
        for name in self._order:
            broker = self._brokers[name]
            heaps.setdefault(broker.zone, []).append((self._rank(broker), name))
        for heap in heaps.values():
            heapq.heapify(heap)
        return heaps

    def _rank(self, broker: BrokerView) -> _Rank:
        """The order of brokers, independent of the segment: the smaller the better."""
        name = broker.replica.incarnation
        return (name in self._avoid, broker.segments + self._assigned.get(name, 0), broker.load, self._order[name])

    def _candidates(
        self, chosen: Sequence[BrokerView], preferred_ids: set[str], excluded: set[str]
    ) -> list[BrokerView]:
        """A few brokers that include the best one.

        In each zone the search goes from the best broker to the first without a penalty. That one is better than all
        that follow, except for the predecessor's own.
        """
        taken = {b.replica.incarnation for b in chosen}
        nodes = {b.node for b in chosen if b.node}
        found = [self._brokers[name] for name in preferred_ids if name in self._order and name not in taken]
        for heap in self._heaps.values():
            seen = []
            while heap:
                entry = heapq.heappop(heap)
                broker = self._brokers[entry[1]]
                if entry[0] != self._rank(broker):
                    continue
                seen.append(entry)
                if entry[1] in taken:
                    continue
                found.append(broker)
                if entry[1] not in excluded and broker.node not in nodes:
                    break
            for entry in seen:
                heapq.heappush(heap, entry)
        return found

    def _cost(
        self, broker: BrokerView, chosen: Sequence[BrokerView], preferred_ids: set[str], excluded: set[str]
    ) -> tuple[float, ...]:
        same_node = sum(bool(b.node) and b.node == broker.node for b in chosen)
        same_zone = sum(bool(b.zone) and b.zone == broker.zone for b in chosen)
        name = broker.replica.incarnation
        avoided, held, load, order = self._rank(broker)
        return (name in excluded, avoided, same_node, same_zone, held, load, name not in preferred_ids, order)


_Rank = tuple[bool, int, float, int]
