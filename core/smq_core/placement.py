"""Which brokers take a segment: alive, not draining, on different nodes, least loaded, staying where possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

    def __init__(self, brokers: Iterable[BrokerView], avoid: Iterable[str] = ()) -> None:
        """``avoid``: incarnations that come last, because they refused a segment a moment ago."""
        self._brokers = [b for b in brokers if b.takes_segments]
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
        if not self._brokers:
            return None
        copies = 1 if wanted is Durability.STORED else min(copies, len(self._brokers))
        sticky = {replica.incarnation for replica in stay}
        shunned = {replica.incarnation for replica in avoid}
        chosen: list[BrokerView] = []
        while len(chosen) < copies:
            left = [b for b in self._brokers if b not in chosen]
            chosen.append(min(left, key=lambda b: (b.replica.incarnation in shunned, *self._cost(b, chosen, sticky))))
        replicas = tuple(b.replica for b in chosen)
        self.count(replicas)
        return Placed(replicas, wanted if copies > 1 else Durability.STORED)

    def count(self, replicas: Sequence[Replica]) -> None:
        """These hold one more segment. A primary does about twice a follower's work."""
        for rank, replica in enumerate(replicas):
            self._given[replica.incarnation] = self._given.get(replica.incarnation, 0) + (2 if rank == 0 else 1)

    def _cost(self, broker: BrokerView, chosen: Sequence[BrokerView], sticky: set[str]) -> tuple[float, ...]:
        same_node = sum(bool(b.node) and b.node == broker.node for b in chosen)
        same_zone = sum(bool(b.zone) and b.zone == broker.zone for b in chosen)
        name = broker.replica.incarnation
        held = broker.segments + self._given.get(name, 0)
        return (name in self._avoid, same_node, same_zone, held, broker.load, name not in sticky)
