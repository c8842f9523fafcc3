"""The leader's side of the seal protocol: the order of requests to replicas, and when the filer alone may decide.

Each segment with successors has one ``SealCoordinator``. ``next_step`` returns what to do now; ``sealed`` and
``failed`` take the outcome. Every step may be repeated, so a new leader begins with a fresh ``SealCoordinator``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from smq_core.errors import JournalIncomplete, NotHosted
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import MILLISECOND, SECOND, Durability, Liveness, Micros, Replica, Segment

REQUEST_TIMEOUT: Micros = 3 * SECOND
REQUEST_REPEAT_AFTER: Micros = 10 * SECOND
RETRY_AFTER: Micros = 200 * MILLISECOND


@dataclass(frozen=True, slots=True)
class RequestSeal:
    """Request that this replica seals the segment.

    The process that recovered the replica's journal does the same in its place. It raises JournalIncomplete if it has
    less than ``known_watermark``, or cannot have all, unless ``accept_incomplete``.
    """

    segment: str
    replica: Replica
    known_watermark: int | None = None
    accept_incomplete: bool = False


@dataclass(frozen=True, slots=True)
class SealFromFiler:
    """No replica can hold more messages: seal at the chain's end.

    ``known_watermark`` and ``at_least`` are as in ``chain_sealer.seal``. ``predecessors`` are those of the segment.
    """

    segment: str
    known_watermark: int | None
    predecessors: tuple[str, ...] = ()
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class SealBlocked:
    """No replica answers, and none is gone with its journal. The seal waits until an administrator accepts the loss."""

    segment: str
    waiting_for: tuple[str, ...]


SealEffect = RequestSeal | SealFromFiler

_PREFERENCE = {
    Liveness.ALIVE: 0,
    Liveness.RECOVERED: 1,
    Liveness.SUSPECT: 2,
    Liveness.ENDED: 3,
    Liveness.GONE: 4,
}


@dataclass(slots=True)
class _Attempt:
    requested_at: Micros | None = None
    liveness: Liveness = Liveness.ALIVE
    """The liveness at the request."""
    failed_at: Micros | None = None
    holds_nothing: bool = False
    acked_nothing: bool = False
    """It proved that it acked nothing that is not in the filer: it never hosted the segment, and never will."""
    recovered_end: int | None = None
    """The end of its journal, if that is incomplete."""


@dataclass(slots=True)
class SealCoordinator:
    """The state of one seal."""

    segment: Segment
    outcome: SealOutcome | None = None
    known_watermark: int | None = None
    loss_accepted: bool = False
    blocked: SealBlocked | None = None
    """What the last step waits for, if no replica answers, and none is gone with its journal."""
    _attempts: dict[str, _Attempt] = field(default_factory=dict)
    _journal_watermark: int = 0
    """The highest one that an incomplete journal mentions."""
    _filer: _Attempt = field(default_factory=_Attempt)
    _release_requested: set[str] = field(default_factory=set)
    """The incarnations that got one more seal request after the seal."""

    def __post_init__(self) -> None:
        self._attempts = {replica.incarnation: _Attempt() for replica in self.segment.replicas}

    def next_step(self, now: Micros, liveness: Callable[[str], Liveness]) -> SealEffect | SealBlocked | None:
        """The next step; None while an answer is outstanding, or after the seal.

        The first request goes to the primary. If it does not answer in time, or is not believed alive, the next
        request goes to the next replica. Requests to several replicas, or repeated ones, are harmless. An unresponsive
        replica may never answer, so the request is repeated when the replica, or a process with its journal, is back.

        An incomplete journal is used only when no replica is left that may have more.
        """
        step = self._next_step(now, liveness)
        self.blocked = step if isinstance(step, SealBlocked) else None
        return step

    def _next_step(self, now: Micros, liveness: Callable[[str], Liveness]) -> SealEffect | SealBlocked | None:
        if self.outcome is not None:
            return None
        candidates = [r for r in self.segment.replicas if self._may_hold_all(r.incarnation, liveness)]
        stored = self.segment.durability is Durability.STORED
        reachable = any(liveness(r.incarnation).can_seal for r in candidates)
        if not candidates or (self.loss_accepted and not reachable):
            return self._with_loss(now, liveness)
        waiting = False
        for replica in sorted(candidates, key=lambda r: _PREFERENCE[liveness(r.incarnation)]):
            attempt = self._attempts[replica.incarnation]
            state = liveness(replica.incarnation)
            if state is Liveness.ENDED:
                continue  # nobody can answer before the journal is back
            if attempt.requested_at is not None:
                waiting = True
                if not state.can_seal:
                    continue
                elapsed = now - attempt.requested_at
                answers = attempt.liveness is state
                if answers and elapsed < REQUEST_TIMEOUT:
                    return None
                if elapsed < (REQUEST_REPEAT_AFTER if answers else self._repeat_after(state)):
                    continue
            if attempt.failed_at is not None and now - attempt.failed_at < RETRY_AFTER:
                waiting = True
                continue
            attempt.requested_at, attempt.liveness = now, state
            return RequestSeal(self.segment.name, replica, self._highest_watermark)
        if stored or self.loss_accepted:
            return self._with_loss(now, liveness)
        unresponsive = not any(liveness(r.incarnation).can_seal for r in candidates)
        if unresponsive or not waiting:
            return SealBlocked(self.segment.name, tuple(r.incarnation for r in candidates))
        return None

    def _repeat_after(self, state: Liveness) -> Micros:
        """When to repeat a request that was sent while the replica was in another state.

        Once the loss is accepted, nothing waits for a request that was sent to an unresponsive replica. A request to
        the process that has ended is lost.
        """
        return 0 if self.loss_accepted or state is Liveness.RECOVERED else REQUEST_TIMEOUT

    def _with_loss(self, now: Micros, liveness: Callable[[str], Liveness]) -> SealEffect | SealBlocked | None:
        """Seals with the longest incomplete journal, or from the filer if there is none or nothing was acked."""
        recovered = [
            (attempt.recovered_end, replica)
            for replica in self.segment.replicas
            if (attempt := self._attempts[replica.incarnation]).recovered_end is not None
            and not attempt.holds_nothing
            and liveness(replica.incarnation) is Liveness.RECOVERED
        ]
        if not recovered or self._nothing_acked:
            return self._from_filer(now)
        _, replica = max(recovered, key=lambda found: found[0])
        attempt = self._attempts[replica.incarnation]
        if attempt.requested_at is not None and now - attempt.requested_at < REQUEST_REPEAT_AFTER:
            return None
        if attempt.failed_at is not None and now - attempt.failed_at < RETRY_AFTER:
            return None
        attempt.requested_at = now
        return RequestSeal(self.segment.name, replica, self._highest_watermark, accept_incomplete=True)

    def sealed(self, outcome: SealOutcome) -> None:
        """The seal chunk exists."""
        self.outcome, self.blocked = outcome, None

    def release_requests(self, liveness: Callable[[str], Liveness]) -> list[RequestSeal]:
        """After the seal, one more request to each that can answer: it finds the seal chunk and frees its tail."""
        alive = [r for r in self.segment.replicas if liveness(r.incarnation).can_seal]
        requests = [RequestSeal(self.segment.name, r) for r in alive if r.incarnation not in self._release_requested]
        self._release_requested.update(r.incarnation for r in alive)
        return requests

    def failed(self, step: SealEffect, error: Exception, now: Micros) -> None:
        """The step raised this error. What it has done is unknown, unless the error says so."""
        if isinstance(step, SealFromFiler):
            self._filer.requested_at, self._filer.failed_at = None, now
            return
        attempt = self._attempts[step.replica.incarnation]
        attempt.requested_at = None
        match error:
            case NotHosted():  # and the replica will never open the segment
                attempt.holds_nothing = True
                attempt.acked_nothing = attempt.acked_nothing or error.certain
            case JournalIncomplete():
                attempt.failed_at, attempt.recovered_end = now, error.end
                self._journal_watermark = max(error.watermark, self._journal_watermark)
            case _:
                attempt.failed_at = now

    def accept_loss(self) -> None:
        """An administrator lets the seal go on, although unreachable replicas may hold more.

        A replica that is alive again is still requested first, and loses nothing.
        """
        self.loss_accepted = True

    def _may_hold_all(self, incarnation: str, liveness: Callable[[str], Liveness]) -> bool:
        attempt, state = self._attempts[incarnation], liveness(incarnation)
        incomplete = state is Liveness.RECOVERED and attempt.recovered_end is not None
        return not attempt.holds_nothing and state is not Liveness.GONE and not incomplete

    def _from_filer(self, now: Micros) -> SealEffect | SealBlocked | None:
        if self._filer.requested_at is not None:
            return None
        if self._filer.failed_at is not None and now - self._filer.failed_at < RETRY_AFTER:
            return None
        self._filer.requested_at = now
        segment = self.segment
        # Acks of Stored segments wait for the filer.
        may_have_lost = segment.durability is Durability.REPLICATED and not self._nothing_acked
        return SealFromFiler(segment.name, self._highest_watermark, segment.predecessors, may_have_lost)

    @property
    def _nothing_acked(self) -> bool:
        """Whether nothing was acked that is not in the filer.

        A message of a ``Replicated`` segment is acked once every replica has it. So one replica that never hosted the
        segment proves that nothing was, unless a watermark shows that its journal is an older copy.
        """
        return not self._highest_watermark and any(it.acked_nothing for it in self._attempts.values())

    @property
    def _highest_watermark(self) -> int | None:
        return max(self.known_watermark or 0, self._journal_watermark) or self.known_watermark
