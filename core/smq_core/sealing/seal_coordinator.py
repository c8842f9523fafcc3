"""The leader's side of the seal protocol: the order of requests to replicas, and when the filer alone may decide.

Each segment with successors has one ``SealCoordinator``. ``next_step`` returns what to do now; the answers come back as
method calls. Every step may be repeated, so a new leader begins with a fresh ``SealCoordinator``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from smq_core.model.entities import MILLISECOND, SECOND, Durability, Liveness, Micros, Replica, SealOutcome, Segment

REQUEST_TIMEOUT: Micros = 3 * SECOND
REQUEST_REPEAT_AFTER: Micros = 10 * SECOND
RETRY_AFTER: Micros = 200 * MILLISECOND


@dataclass(frozen=True, slots=True)
class RequestSeal:
    """Request that this replica seals the segment."""

    segment: str
    replica: Replica


@dataclass(frozen=True, slots=True)
class SealFromFiler:
    """No replica can hold more messages: seal at the chain's end. ``known_watermark`` as in ``chain_sealer.seal``.

    ``predecessors`` are those of the segment.
    """

    segment: str
    known_watermark: int | None
    predecessors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SealBlocked:
    """No replica answers and none has a termination proof. The seal waits, until an administrator accepts the loss."""

    segment: str
    waiting_for: tuple[str, ...]


SealStep = RequestSeal | SealFromFiler | SealBlocked


@dataclass(slots=True)
class _Attempt:
    requested_at: Micros | None = None
    believed_alive: bool = True
    """Whether it was believed alive at the request."""
    failed_at: Micros | None = None
    holds_nothing: bool = False


@dataclass(slots=True)
class SealCoordinator:
    """The state of one seal."""

    segment: Segment
    outcome: SealOutcome | None = None
    known_watermark: int | None = None
    loss_accepted: bool = False
    blocked: SealBlocked | None = None
    """What the last step waits for, if no replica answers and none has a termination proof."""
    _attempts: dict[str, _Attempt] = field(default_factory=dict)
    _filer: _Attempt = field(default_factory=_Attempt)
    _release_requested: set[str] = field(default_factory=set)
    """The incarnations that got one more seal request after the seal."""

    def __post_init__(self) -> None:
        self._attempts = {replica.incarnation: _Attempt() for replica in self.segment.replicas}

    def next_step(self, now: Micros, liveness: Callable[[str], Liveness]) -> SealStep | None:
        """The next step; None while an answer is outstanding, or after the seal.

        The first request goes to the primary. If it does not answer in time, or is not believed alive, the next
        request goes to the next replica. Requests to several replicas, or repeated ones, are harmless. An unresponsive
        replica may never answer, so the request is repeated when the replica is back.
        """
        step = self._next_step(now, liveness)
        self.blocked = step if isinstance(step, SealBlocked) else None
        return step

    def _next_step(self, now: Micros, liveness: Callable[[str], Liveness]) -> SealStep | None:
        if self.outcome is not None:
            return None
        candidates = [r for r in self.segment.replicas if self._may_hold(r.incarnation, liveness)]
        stored = self.segment.durability is Durability.STORED
        alive = any(liveness(r.incarnation) is Liveness.ALIVE for r in candidates)
        if not candidates or (self.loss_accepted and not alive):
            return self._from_filer(now)
        waiting = False
        ordered = sorted(candidates, key=lambda r: liveness(r.incarnation) is not Liveness.ALIVE)
        for replica in ordered:
            attempt = self._attempts[replica.incarnation]
            believed_alive = liveness(replica.incarnation) is Liveness.ALIVE
            if attempt.requested_at is not None:
                waiting = True
                if not believed_alive:
                    continue
                elapsed = now - attempt.requested_at
                if attempt.believed_alive and elapsed < REQUEST_TIMEOUT:
                    return None
                # Once the loss is accepted, nothing waits for a request that was sent to an unresponsive replica.
                to_unresponsive = 0 if self.loss_accepted else REQUEST_TIMEOUT
                if elapsed < (REQUEST_REPEAT_AFTER if attempt.believed_alive else to_unresponsive):
                    continue
            if attempt.failed_at is not None and now - attempt.failed_at < RETRY_AFTER:
                waiting = True
                continue
            attempt.requested_at, attempt.believed_alive = now, believed_alive
            return RequestSeal(self.segment.name, replica)
        if stored or self.loss_accepted:
            return self._from_filer(now)
        unresponsive = all(liveness(r.incarnation) is not Liveness.ALIVE for r in candidates)
        if unresponsive or not waiting:
            return SealBlocked(self.segment.name, tuple(r.incarnation for r in candidates))
        return None

    def sealed(self, outcome: SealOutcome) -> None:
        """The seal chunk exists."""
        self.outcome, self.blocked = outcome, None

    def release_requests(self, liveness: Callable[[str], Liveness]) -> list[RequestSeal]:
        """After the seal, one more request to each live replica: it finds the seal chunk and frees its tail."""
        alive = [r for r in self.segment.replicas if liveness(r.incarnation) is Liveness.ALIVE]
        requests = [RequestSeal(self.segment.name, r) for r in alive if r.incarnation not in self._release_requested]
        self._release_requested.update(r.incarnation for r in alive)
        return requests

    def refused(self, incarnation: str, now: Micros) -> None:
        """The call to this replica failed, with unknown effect."""
        attempt = self._attempts[incarnation]
        attempt.requested_at, attempt.failed_at = None, now

    def not_hosted(self, incarnation: str) -> None:
        """The replica does not host the segment, and will never open it."""
        attempt = self._attempts[incarnation]
        attempt.requested_at, attempt.holds_nothing = None, True

    def filer_seal_failed(self, now: Micros) -> None:
        self._filer.requested_at, self._filer.failed_at = None, now

    def accept_loss(self) -> None:
        """An administrator lets the seal go on, although unreachable replicas may hold more.

        A replica that is alive again is still requested first, and loses nothing.
        """
        self.loss_accepted = True

    def _may_hold(self, incarnation: str, liveness: Callable[[str], Liveness]) -> bool:
        return not self._attempts[incarnation].holds_nothing and liveness(incarnation) is not Liveness.GONE

    def _from_filer(self, now: Micros) -> SealStep | None:
        if self._filer.requested_at is not None:
            return None
        if self._filer.failed_at is not None and now - self._filer.failed_at < RETRY_AFTER:
            return None
        self._filer.requested_at = now
        return SealFromFiler(self.segment.name, self.known_watermark, self.segment.predecessors)
