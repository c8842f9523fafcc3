"""The deletion of a topic: seals every segment of its layout, without successors.

Each segment has a ``SealCoordinator``: its replicas seal it, or the filer if all have termination proofs. An ack needs
every replica, so a topic whose segments are all sealed acks nothing more. Every step may be repeated: if a leader
stops, the next one begins again with the layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from smq_core.model.entities import Layout, Liveness, Micros, SealOutcome
from smq_core.sealing.seal_coordinator import RequestSeal, SealBlocked, SealCoordinator, SealFromFiler

# The reason in the seal requests. Producers receive UnknownTopic.
REASON = "Deleted"


@dataclass(slots=True)
class TopicDeletion:
    """``step`` returns what to do now; the answers come back through the other methods."""

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

    def step(self, now: Micros, liveness: Callable[[str], Liveness]) -> list[RequestSeal | SealFromFiler]:
        """What to begin now. The order of segments does not matter, because no successors wait."""
        steps: list[RequestSeal | SealFromFiler] = []
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

    def refused(self, segment: str, incarnation: str, now: Micros) -> None:
        """The call failed, with unknown effect."""
        self._sealings[segment].refused(incarnation, now)

    def not_hosted(self, segment: str, incarnation: str, *, certain: bool) -> None:
        """The replica does not host the segment, and never will. ``certain`` is as in NotHosted."""
        self._sealings[segment].not_hosted(incarnation, certain=certain)

    def journal_incomplete(self, segment: str, incarnation: str, now: Micros, end: int, watermark: int = 0) -> None:
        """The process that recovered this replica's journal cannot have all of the segment."""
        self._sealings[segment].journal_incomplete(incarnation, now, end, watermark)

    def filer_seal_failed(self, segment: str, now: Micros) -> None:
        self._sealings[segment].filer_seal_failed(now)
