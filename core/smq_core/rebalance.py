"""When a broker stands idle and another is hot: which one segment to move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smq_core.model import Segment
from smq_core.placement import BrokerView

MIN_GAIN = 0.5
"""Pressure that a move must take off the hot broker to be worth a seal."""


@dataclass(frozen=True, slots=True)
class Move:
    """Seal this segment; its successor goes to where there is room."""

    segment: str
    because: str


def to_move(
    segments: Sequence[Segment], pressures: Mapping[str, float], brokers: Mapping[str, BrokerView]
) -> Move | None:
    """The segment whose move evens out the brokers most, or None when none is worth it.

    A primary counts its segment's pressure fully, a follower half. A segment is moved from the fullest broker only when
    the emptiest one, having taken it, is still below what the fullest was.
    """
    load = {name: 0.0 for name, broker in brokers.items() if broker.takes_segments}
    for segment in segments:
        for rank, replica in enumerate(segment.replicas):
            if replica.incarnation in load:
                load[replica.incarnation] += pressures.get(segment.name, 0.0) * (1.0 if rank == 0 else 0.5)
    if len(load) < 2:
        return None
    fullest, emptiest = max(load, key=lambda b: load[b]), min(load, key=lambda b: load[b])
    gap = load[fullest] - load[emptiest]
    movable = [
        s
        for s in segments
        if s.primary.incarnation == fullest
        and emptiest not in {r.incarnation for r in s.replicas}
        and MIN_GAIN <= pressures.get(s.name, 0.0) < gap
    ]
    if not movable:
        return None
    best = min(movable, key=lambda s: abs(pressures[s.name] - gap / 2))
    hot, idle = brokers[fullest].replica.broker, brokers[emptiest].replica.broker
    return Move(best.name, f"broker {hot} carries {load[fullest]:.1f} targets, {idle} {load[emptiest]:.1f}")
