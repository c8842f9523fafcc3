"""Which brokers take a segment: alive, not draining, on different nodes, least loaded, staying where possible."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from smq_core.model import Durability, Replica
from smq_core.sealing import Liveness


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One incarnation as the leader sees it.

    ``load`` is what it carries of all topics, in targets (``rebalance.carried``), 0 when unknown; ``segments`` counts
    what it holds: 2 as primary, 1 as follower.
    """

    replica: Replica
    liveness: Liveness = Liveness.ALIVE
    draining: bool = False
    node: str = ""
    zone: str = ""
    load: float = 0.0
    segments: int = 0

    @property
    def takes_segments(self) -> bool:
        return self.liveness is Liveness.ALIVE and not self.draining


@dataclass(frozen=True, slots=True)
class Placed:
    replicas: tuple[Replica, ...]
    durability: Durability


class Placer:
    """Places the segments of one decision round; what it has given out counts as load for what follows."""

    def __init__(self, brokers: Mapping[str, BrokerView], avoid: Iterable[str] = ()) -> None:
        """``avoid``: incarnations that come last, because they refused a segment a moment ago."""
        self._brokers = brokers
        self._avoid = set(avoid)
        self._given: dict[str, int] = {}

    def place(
        self, wanted: Durability, copies: int, *, stay: Sequence[Replica] = (), avoid: Sequence[Replica] = ()
    ) -> Placed | None:
        """The replicas of one segment, the primary first; None when there is no broker at all.

        With fewer than two brokers a ``Replicated`` segment is placed as ``Stored`` on one: acks then wait for the
        filer, and nothing is lost. ``stay`` are the predecessor's replicas, preferred when equally loaded; those in
        ``avoid`` are taken only when there are too few others, and then rather as followers.
        """
        number = len(self._order)
        if not number:
            return None
        copies = 1 if wanted is Durability.STORED else min(copies, number)
        sticky = {replica.incarnation for replica in stay}
        shunned = {replica.incarnation for replica in avoid}
        chosen: list[BrokerView] = []
        while len(chosen) < copies:
            candidates = self._candidates(chosen, sticky, shunned)
            chosen.append(min(candidates, key=lambda b: self._cost(b, chosen, sticky, shunned)))
        replicas = tuple(b.replica for b in chosen)
        self.count(replicas)
        return Placed(replicas, wanted if copies > 1 else Durability.STORED)

    def count(self, replicas: Sequence[Replica]) -> None:
        """These hold one more segment. A primary does about twice a follower's work."""
        for rank, replica in enumerate(replicas):
            name = replica.incarnation
            self._given[name] = self._given.get(name, 0) + (2 if rank == 0 else 1)
            if name in self._order:
                broker = self._brokers[name]
                heapq.heappush(self._heaps[broker.zone], (self._rank(broker), name))

    @cached_property
    def _order(self) -> dict[str, int]:
        """The brokers that take segments, in the order in which they were given."""
        return {name: i for i, (name, b) in enumerate(self._brokers.items()) if b.takes_segments}

    @cached_property
    def _heaps(self) -> dict[str, list[tuple[_Rank, str]]]:
        """For each zone its brokers, the best first. An entry that is out of date is dropped when it is met."""
        heaps: dict[str, list[tuple[_Rank, str]]] = {}
        for name in self._order:
            broker = self._brokers[name]
            heaps.setdefault(broker.zone, []).append((self._rank(broker), name))
        for heap in heaps.values():
            heapq.heapify(heap)
        return heaps

    def _rank(self, broker: BrokerView) -> _Rank:
        """What decides between brokers, whatever else the segment has: the smaller the better."""
        name = broker.replica.incarnation
        return (name in self._avoid, broker.segments + self._given.get(name, 0), broker.load, self._order[name])

    def _candidates(self, chosen: Sequence[BrokerView], sticky: set[str], shunned: set[str]) -> list[BrokerView]:
        """Brokers of which one is the best of all.

        In each zone the brokers are looked at from the best on, until one has nothing against it: it is better than all
        that come after it, except for the predecessor's own.
        """
        taken = {b.replica.incarnation for b in chosen}
        nodes = {b.node for b in chosen if b.node}
        found = [self._brokers[name] for name in sticky if name in self._order and name not in taken]
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
                if entry[1] not in shunned and broker.node not in nodes:
                    break
            for entry in seen:
                heapq.heappush(heap, entry)
        return found

    def _cost(
        self, broker: BrokerView, chosen: Sequence[BrokerView], sticky: set[str], shunned: set[str]
    ) -> tuple[float, ...]:
        same_node = sum(bool(b.node) and b.node == broker.node for b in chosen)
        same_zone = sum(bool(b.zone) and b.zone == broker.zone for b in chosen)
        name = broker.replica.incarnation
        avoided, held, load, order = self._rank(broker)
        return (name in shunned, avoided, same_node, same_zone, held, load, name not in sticky, order)


_Rank = tuple[bool, int, float, int]
