"""The end of a deleted topic: every segment of its layout is sealed, and none is followed by another.

The one mechanism, without successors: a seal for each segment (``sealing.py``), asked of its replicas or, when they are
proved gone, made from the filer. An ack needs every replica, so a topic of which each segment is sealed acks nothing
more. All of it may be repeated: a leader that was stopped anywhere is followed by one that begins with the layout anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from smq_core.model import Layout, SealOutcome
from smq_core.sealing import AskReplica, Blocked, Liveness, SealFromFiler, Sealing

REASON = "Deleted"
"""What the replicas are told; producers hear of it as an UnknownTopic."""


@dataclass(slots=True)
class Ending:
    """``step`` says what to do now; what came of it is told by the other methods. Times are microseconds."""

    layout: Layout
    blocked: dict[str, Blocked] = field(default_factory=dict)
    """The segments of which nobody answers and nobody is proved gone."""
    _sealings: dict[str, Sealing] = field(default_factory=dict)
    _told: dict[str, set[str]] = field(default_factory=dict)
    """The replicas of sealed segments that were asked once more, to let go."""

    def __post_init__(self) -> None:
        self._sealings = {segment.name: Sealing(segment) for segment in self.layout.segments}

    @property
    def unsealed(self) -> list[str]:
        """The segments whose seal chunk is not known to exist; empty: the topic has ended."""
        return [name for name, sealing in self._sealings.items() if sealing.outcome is None]

    def step(self, now: int, liveness: Callable[[str], Liveness]) -> list[AskReplica | SealFromFiler]:
        """What to begin now. The order of segments does not matter: none has successors that wait for it."""
        steps: list[AskReplica | SealFromFiler] = []
        for name, sealing in self._sealings.items():
            if sealing.outcome is not None:
                steps += self._release(sealing, liveness)
                continue
            step = sealing.next_step(now, liveness)
            self.blocked.pop(name, None)
            if isinstance(step, Blocked):
                self.blocked[name] = step
            elif step is not None:
                steps.append(step)
        return steps

    def _release(self, sealing: Sealing, liveness: Callable[[str], Liveness]) -> list[AskReplica | SealFromFiler]:
        """The other replicas learn it by being asked too: they find the seal chunk and let their tails go."""
        told = self._told.setdefault(sealing.segment.name, set())
        alive = [r for r in sealing.segment.replicas if liveness(r.incarnation) is Liveness.ALIVE]
        asks: list[AskReplica | SealFromFiler] = [
            AskReplica(sealing.segment.name, r) for r in alive if r.incarnation not in told
        ]
        told.update(r.incarnation for r in alive)
        return asks

    def sealed(self, outcome: SealOutcome) -> None:
        """The seal chunk exists."""
        self._sealings[outcome.segment].sealed(outcome)
        self.blocked.pop(outcome.segment, None)

    def refused(self, segment: str, incarnation: str, now: int, *, not_held: bool) -> None:
        """The call failed; ``not_held``: it holds nothing of the segment, and never will."""
        if not_held:
            self._sealings[segment].not_held(incarnation)
        else:
            self._sealings[segment].refused(incarnation, now)

    def filer_failed(self, segment: str, now: int) -> None:
        self._sealings[segment].filer_failed(now)
