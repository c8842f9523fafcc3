"""The deletion of a topic: seals every segment of its layout, without successors.

Each segment has a ``SealCoordinator``: its replicas seal it, or the filer if all have termination proofs. An ack needs
every replica, so a topic whose segments are all sealed acks nothing more. Every step may be repeated: if a leader
stops, the next one begins again with the layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout, Liveness, Micros
from smq_core.sealing.seal_coordinator import SealBlocked, SealCoordinator, SealEffect

# The reason in the seal requests. Producers receive UnknownTopic.
REASON = "Deleted"


@dataclass(slots=True)
class TopicDeletion:
    """``step`` returns what to do now; ``sealed`` and ``failed`` take the outcome."""

    layout: Layout
    _sealings: dict[str, SealCoordinator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sealings = {segment.name: SealCoordinator(segment) for segment in self.layout.segments}

    @property
    def blocked(self) -> dict[str, SealBlocked]:
        """The segments of which no replica answers and none has a termination proof."""
        return {name: sealing.blocked for name, sealing in self._sealings.items() if sealing.blocked is not None}

    @property
    def unsealed(self) -> list[str]:
        """The segments without a known seal chunk. Once empty, the topic acks nothing more."""
        return [name for name, sealing in self._sealings.items() if sealing.outcome is None]

    def step(self, now: Micros, liveness: Callable[[str], Liveness]) -> list[SealEffect]:
        """What to begin now. The order of segments does not matter, because no successors wait."""
        steps: list[SealEffect] = []
        for sealing in self._sealings.values():
            if sealing.outcome is not None:
                steps += sealing.release_requests(liveness)
                continue
            step = sealing.next_step(now, liveness)
            if step is not None and not isinstance(step, SealBlocked):
                steps.append(step)
        return steps

    def sealed(self, outcome: SealOutcome) -> None:
        """The seal chunk exists."""
        self._sealings[outcome.segment].sealed(outcome)

    def failed(self, step: SealEffect, error: Exception, now: Micros) -> None:
        """The step raised this error."""
        self._sealings[step.segment].failed(step, error, now)
