"""The opening of a topic's segments: which replicas to request to open them, and brokers that refuse.

A broker that refuses to open segments receives none during a cooldown, which grows with each refusal. The leader
considers a dead incarnation alive until its reports are overdue, and a live broker may refuse every request. If there
is no other broker, segments would be placed on it and moved away again as fast as layouts can be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from smq_core.model.entities import MILLISECOND, SECOND, Layout, Micros
from smq_core.reconcile.effects import OpenReplica
from smq_core.reconcile.segment_record import SegmentRecords
from smq_core.scaling.placement import BrokerView

FIRST_COOLDOWN: Micros = 100 * MILLISECOND
MAX_COOLDOWN: Micros = 10 * SECOND
BACKOFF_RESET_AFTER: Micros = 60 * SECOND


def opening_effects(
    layout: Layout, records: SegmentRecords, now: Micros, brokers: Mapping[str, BrokerView]
) -> list[OpenReplica]:
    """The requests to begin now. The records note that they were sent."""
    effects = []
    for segment in layout.segments:
        if segment.successors or (record := records.of(segment.name)).fully_opened:
            continue
        if all(record.has_opened(replica.incarnation) for replica in segment.replicas):
            record.fully_opened = True
            continue
        for replica in segment.replicas:
            broker = brokers.get(replica.incarnation)
            opening = record.opening(replica.incarnation)
            if opening.requested or opening.done or opening.refused or now < opening.retry_at:
                continue
            if broker is None or broker.liveness.terminated:
                continue
            opening.requested = True
            effects.append(OpenReplica(segment, replica))
    return effects


@dataclass(slots=True)
class OpenBackoff:
    """The refusals that one topic's reconciler received, by incarnation."""

    _cooldowns: dict[str, tuple[int, Micros]] = field(default_factory=dict)
    """The number of refusals in a row, and the end of the cooldown."""

    def refused(self, incarnation: str, now: Micros) -> None:
        """The incarnation refused to open a segment. A refusal during its cooldown does not extend the cooldown."""
        self._cooldowns = {name: it for name, it in self._cooldowns.items() if abs(now - it[1]) < BACKOFF_RESET_AFTER}
        times = self._cooldowns.get(incarnation, (0, 0))[0]
        if incarnation not in self.cooling_down(now):
            self._cooldowns[incarnation] = times + 1, now + min(FIRST_COOLDOWN << times, MAX_COOLDOWN)

    def opened(self, incarnation: str) -> None:
        """The incarnation opened a segment, so its refusals are forgotten."""
        self._cooldowns.pop(incarnation, None)

    def cooling_down(self, now: Micros) -> set[str]:
        """The incarnations that receive no segment now."""
        return {name for name, (_, until) in self._cooldowns.items() if now < until <= now + MAX_COOLDOWN}
