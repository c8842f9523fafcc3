"""Decides which replicas to move from loaded brokers to idle ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from smq_core.model.entities import Segment
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.scaling.placement import BrokerView

# The gap between the fullest and the emptiest broker that is worth a seal, in targets: about half a broker's load.
MIN_GAP = 1.5
# The same, as a share of a broker's average load.
MIN_GAP_SHARE = 0.3
MIN_MOVE_SHARE, MAX_MOVE_SHARE = 1 / 64, 3 / 4
"""A replica moves if its load is between these shares of the gap: enough to matter, too little to move back."""
# A follower's load as a share of its primary's.
FOLLOWER_WEIGHT = 0.5
# How many of the emptiest brokers are tried, because a segment's other replicas may exclude some.
MAX_RECEIVERS = 4

# A replica: its load, its rank, its segment.
_ReplicaLoad = tuple[float, int, Segment]


def load_by_broker(segments: Iterable[Segment], pressures: Mapping[str, float]) -> dict[str, float]:
    """The load of each incarnation in targets: a primary counts its segment's pressure fully, a follower half."""
    load: dict[str, float] = {}
    for segment in segments:
        pressure = pressures.get(segment.name, 0.0)
        for rank, replica in enumerate(segment.replicas):
            share = pressure if rank == 0 else pressure * FOLLOWER_WEIGHT
            load[replica.incarnation] = load.get(replica.incarnation, 0.0) + share
    return load


def plan_moves(
    segments: Sequence[Segment],
    pressures: Mapping[str, float],
    brokers: Mapping[str, BrokerView],
    movable: Iterable[Segment],
    max_moves: int,
    counted: Mapping[str, float],
) -> list[SegmentChange]:
    """At most ``max_moves`` moves, each from the broker that is then the fullest to one of the emptiest.

    All ``segments`` count as load, but only ``movable`` ones move, each once. A replica moves only if that narrows the
    gap, and never to the node or zone of another replica of its segment, unless it shares that already.
    ``BrokerView.load`` without ``counted``, this topic's share of it, is the load by other topics. Among equally full
    brokers the name decides.
    """
    own = load_by_broker(segments, pressures)
    # The views are older than the pressures: when load falls, the difference is not a load that a move would leave.
    others = {name: max(0.0, b.load - counted.get(name, 0.0)) for name, b in brokers.items()}
    if all(carries + others[name] < MIN_GAP for name, carries in own.items() if name in brokers):
        return []
    load = {name: own.get(name, 0.0) + others[name] for name, b in brokers.items() if b.accepts_segments}
    if len(load) < 2:
        return []
    replicas_by_broker: dict[str, list[_ReplicaLoad]] = {}
    for segment in movable:
        for rank, replica in enumerate(segment.replicas):
            share = pressures.get(segment.name, 0.0) * (1.0 if rank == 0 else FOLLOWER_WEIGHT)
            replicas_by_broker.setdefault(replica.incarnation, []).append((share, rank, segment))
    min_gap = max(MIN_GAP, MIN_GAP_SHARE * sum(load.values()) / len(load))
    moves: list[SegmentChange] = []
    moved: set[str] = set()
    donors = {name for name in replicas_by_broker if name in load}
    receivers = _emptiest(load)
    while donors and len(moves) < max_moves:
        fullest = min(donors, key=lambda name: (-load[name], name))
        if load[fullest] - load[receivers[0]] < min_gap:
            break
        candidates = [candidate for candidate in replicas_by_broker[fullest] if candidate[2].name not in moved]
        for receiver in receivers:
            gap = load[fullest] - load[receiver]
            best = _best(candidates, gap, brokers[receiver], brokers) if gap >= min_gap else None
            if best is not None:
                share, rank, segment = best
                hot, idle = brokers[fullest].replica, brokers[receiver].replica
                because = f"broker {hot.broker} carries {load[fullest]:.1f} targets, {idle.broker} {load[receiver]:.1f}"
                replacement = segment.replicas[rank], idle
                moves.append(
                    SegmentChange(SegmentAction.MOVE, (segment.name,), because=because, replacement=replacement)
                )
                moved.add(segment.name)
                load[fullest] -= share
                load[receiver] += share
                receivers = _emptiest(load)
                break
        else:
            donors.discard(fullest)
    return moves


def _emptiest(load: Mapping[str, float]) -> list[str]:
    return heapq.nsmallest(MAX_RECEIVERS, load, key=load.__getitem__)


def _best(
    candidates: Sequence[_ReplicaLoad], gap: float, to: BrokerView, brokers: Mapping[str, BrokerView]
) -> _ReplicaLoad | None:
    """The replica whose move leaves the smallest gap between both brokers."""
    fitting = [
        h
        for h in candidates
        if MIN_MOVE_SHARE * gap <= h[0] <= MAX_MOVE_SHARE * gap and _can_move(h[2], h[1], to, brokers)
    ]
    return min(fitting, key=lambda h: (abs(h[0] - gap / 2), h[1], h[2].number), default=None)


def _can_move(segment: Segment, rank: int, to: BrokerView, brokers: Mapping[str, BrokerView]) -> bool:
    """True if the move does not put this replica closer to the segment's other replicas."""
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
