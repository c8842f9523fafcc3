"""When a broker stands idle and another is hot: which replicas to move where."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from smq_core.model import Replica, Segment
from smq_core.placement import BrokerView

MIN_GAP = 1.5
"""Targets between the fullest and the emptiest broker that are worth a seal: about half of what a broker carries."""
UNEVEN = 0.3
"""The same, as a share of what a broker carries on average."""
SMALLEST, LARGEST = 1 / 64, 3 / 4
"""A replica moves when its work is between these shares of the gap: enough to matter, and it would not move back."""
FOLLOWER = 0.5
"""What a follower has to do, when a primary has 1."""
RECEIVERS = 4
"""So many of the emptiest brokers are tried: a segment's other replicas may forbid some."""

_Held = tuple[float, int, Segment]
"""A replica: what it has to do, its rank, its segment."""


@dataclass(frozen=True, slots=True)
class Move:
    """Seal this segment; its successor has ``to`` in the place of the replica ``away``."""

    segment: str
    away: Replica
    to: Replica
    because: str


def carried(segments: Iterable[Segment], pressures: Mapping[str, float]) -> dict[str, float]:
    """What each incarnation carries, in targets: a primary counts its segment's pressure fully, a follower half."""
    load: dict[str, float] = {}
    for segment in segments:
        pressure = pressures.get(segment.name, 0.0)
        for rank, replica in enumerate(segment.replicas):
            share = pressure if rank == 0 else pressure * FOLLOWER
            load[replica.incarnation] = load.get(replica.incarnation, 0.0) + share
    return load


def to_move(
    segments: Sequence[Segment],
    pressures: Mapping[str, float],
    brokers: Mapping[str, BrokerView],
    movable: Iterable[Segment],
    most: int,
) -> list[Move]:
    """At most ``most`` moves, each from what is then the fullest broker to one of the emptiest; none when not worth it.

    All ``segments`` count as load, only ``movable`` ones move, each once. A replica is moved only when that narrows the
    gap, and never next to another of its segment (same node or zone), unless it is next to it already. What brokers
    carry for other topics is known from ``BrokerView.load``, when that is given.
    """
    own = carried(segments, pressures)
    if all(max(carries, brokers[name].load) < MIN_GAP for name, carries in own.items() if name in brokers):
        return []
    load = {name: max(own.get(name, 0.0), b.load) for name, b in brokers.items() if b.takes_segments}
    if len(load) < 2:
        return []
    on: dict[str, list[_Held]] = {}
    for segment in movable:
        for rank, replica in enumerate(segment.replicas):
            share = pressures.get(segment.name, 0.0) * (1.0 if rank == 0 else FOLLOWER)
            on.setdefault(replica.incarnation, []).append((share, rank, segment))
    worth = max(MIN_GAP, UNEVEN * sum(load.values()) / len(load))
    moves: list[Move] = []
    moved: set[str] = set()
    givers = {name for name in on if name in load}
    receivers = _emptiest(load)
    while givers and len(moves) < most:
        fullest = max(givers, key=load.__getitem__)
        if load[fullest] - load[receivers[0]] < worth:
            break
        there = [held for held in on[fullest] if held[2].name not in moved]
        for receiver in receivers:
            gap = load[fullest] - load[receiver]
            best = _best(there, gap, brokers[receiver], brokers) if gap >= worth else None
            if best is not None:
                share, rank, segment = best
                hot, idle = brokers[fullest].replica, brokers[receiver].replica
                because = f"broker {hot.broker} carries {load[fullest]:.1f} targets, {idle.broker} {load[receiver]:.1f}"
                moves.append(Move(segment.name, segment.replicas[rank], idle, because))
                moved.add(segment.name)
                load[fullest] -= share
                load[receiver] += share
                receivers = _emptiest(load)
                break
        else:
            givers.discard(fullest)
    return moves


def _emptiest(load: Mapping[str, float]) -> list[str]:
    return heapq.nsmallest(RECEIVERS, load, key=load.__getitem__)


def _best(there: Sequence[_Held], gap: float, to: BrokerView, brokers: Mapping[str, BrokerView]) -> _Held | None:
    """The replica whose move brings both brokers closest to each other."""
    fitting = [h for h in there if SMALLEST * gap <= h[0] <= LARGEST * gap and _may_go(h[2], h[1], to, brokers)]
    return min(fitting, key=lambda h: (abs(h[0] - gap / 2), h[1], h[2].number), default=None)


def _may_go(segment: Segment, rank: int, to: BrokerView, brokers: Mapping[str, BrokerView]) -> bool:
    """True when this replica is not worse apart from the segment's others there than it is now."""
    others = [brokers.get(r.incarnation) for i, r in enumerate(segment.replicas) if i != rank]
    now = brokers.get(segment.replicas[rank].incarnation)
    for other in others:
        if other is None or now is None or other.replica.incarnation == to.replica.incarnation:
            return False
        if to.node and to.node == other.node != now.node:
            return False
        if to.zone and to.zone == other.zone != now.zone:
            return False
    return True
