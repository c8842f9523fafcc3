"""The seal protocol, leader's side: whom to ask, in which order, and when the filer alone may decide.

One ``Sealing`` per segment that has successors. ``next_step(now, ...)`` says what to do now; the answers come back as
method calls. Everything may be repeated, and a new leader begins with a fresh ``Sealing``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from smq_core.model import Durability, Replica, SealOutcome, Segment

ASK_DEADLINE = 3_000_000
ASK_AGAIN_AFTER = 10_000_000
RETRY_AFTER = 200_000


class Liveness(StrEnum):
    """What the leader knows of an incarnation. Unreachable is not gone: only GONE is proof."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class AskReplica:
    """Ask this replica to seal the segment."""

    segment: str
    replica: Replica


@dataclass(frozen=True, slots=True)
class SealFromFiler:
    """No replica can hold anything more: seal at the chain's end. ``known_watermark`` as in ``sealer.seal``."""

    segment: str
    known_watermark: int | None


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nobody answers and nobody is proved gone: wait, or let a person accept the loss."""

    segment: str
    waiting_for: tuple[str, ...]


Step = AskReplica | SealFromFiler | Blocked


@dataclass(slots=True)
class _Try:
    asked_at: int | None = None
    believed: bool = True
    """Was it believed alive when it was asked?"""
    failed_at: int | None = None
    holds_nothing: bool = False


@dataclass(slots=True)
class Sealing:
    """The state of one seal. Times are microseconds."""

    segment: Segment
    outcome: SealOutcome | None = None
    known_watermark: int | None = None
    loss_accepted: bool = False
    _tries: dict[str, _Try] = field(default_factory=dict)
    _filer: _Try = field(default_factory=_Try)

    def __post_init__(self) -> None:
        self._tries = {replica.incarnation: _Try() for replica in self.segment.replicas}

    def next_step(self, now: int, liveness: Callable[[str], Liveness]) -> Step | None:
        """What to do now; None while an answer is awaited, or when it is done.

        The primary is asked first. One that does not answer in time, or is not believed alive, gives way to the next
        replica; asking several, or one again, is harmless. The answer to a question that went to a silent replica may
        never come: it is asked again when it is back.
        """
        if self.outcome is not None:
            return None
        candidates = [r for r in self.segment.replicas if self._may_hold(r.incarnation, liveness)]
        stored = self.segment.durability is Durability.STORED
        if not candidates or self.loss_accepted:
            return self._from_filer(now)
        waiting = False
        ordered = sorted(candidates, key=lambda r: liveness(r.incarnation) is not Liveness.ALIVE)
        for replica in ordered:
            attempt = self._tries[replica.incarnation]
            believed = liveness(replica.incarnation) is Liveness.ALIVE
            if attempt.asked_at is not None:
                waiting = True
                if not believed:
                    continue
                asked = now - attempt.asked_at
                if attempt.believed and asked < ASK_DEADLINE:
                    return None
                if asked < (ASK_AGAIN_AFTER if attempt.believed else ASK_DEADLINE):
                    continue
            if attempt.failed_at is not None and now - attempt.failed_at < RETRY_AFTER:
                waiting = True
                continue
            attempt.asked_at, attempt.believed = now, believed
            return AskReplica(self.segment.name, replica)
        if stored:
            return self._from_filer(now)
        silent = all(liveness(r.incarnation) is not Liveness.ALIVE for r in candidates)
        if silent or not waiting:
            return Blocked(self.segment.name, tuple(r.incarnation for r in candidates))
        return None

    def sealed(self, outcome: SealOutcome) -> None:
        """The seal chunk exists."""
        self.outcome = outcome

    def refused(self, incarnation: str, now: int) -> None:
        """The call to this replica failed; nothing is known."""
        attempt = self._tries[incarnation]
        attempt.asked_at, attempt.failed_at = None, now

    def not_held(self, incarnation: str) -> None:
        """The replica holds nothing of the segment and promised never to open it."""
        attempt = self._tries[incarnation]
        attempt.asked_at, attempt.holds_nothing = None, True

    def filer_failed(self, now: int) -> None:
        self._filer.asked_at, self._filer.failed_at = None, now

    def accept_loss(self) -> None:
        """A person said: go on, even if a replica that cannot be reached holds more."""
        self.loss_accepted = True

    def _may_hold(self, incarnation: str, liveness: Callable[[str], Liveness]) -> bool:
        return not self._tries[incarnation].holds_nothing and liveness(incarnation) is not Liveness.GONE

    def _from_filer(self, now: int) -> Step | None:
        if self._filer.asked_at is not None:
            return None
        if self._filer.failed_at is not None and now - self._filer.failed_at < RETRY_AFTER:
            return None
        self._filer.asked_at = now
        return SealFromFiler(self.segment.name, self.known_watermark)
