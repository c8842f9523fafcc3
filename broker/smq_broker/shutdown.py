"""How a broker leaves: the leader seals its segments elsewhere, or it writes the tails itself if there is no leader."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

import structlog

from smq_broker.segments.registry import SegmentRegistry

FLUSH_CHECK_SECONDS = 0.05
SEAL_RETRY_SECONDS = 1.0
FIND_SEALS_SECONDS = 5.0
MAY_LEAVE_CHECK_SECONDS = 0.1

log = structlog.get_logger(__name__)


class Session(Protocol):
    """What a shutdown needs of the session with the leader."""

    @property
    def may_leave(self) -> Event: ...

    @property
    def answered_at(self) -> float: ...


@dataclass(frozen=True, slots=True)
class NoSession:
    """That of a broker which no leader has let serve."""

    may_leave: Event = field(default_factory=Event)
    answered_at: float = -math.inf


class TailWriter(Protocol):
    """What a shutdown needs of the flusher."""

    def flush_all(self) -> list[str]: ...


class RecoveredTails(Protocol):
    """What a shutdown needs of the logs of former incarnations."""

    def waiting(self) -> list[str]: ...

    def drop_sealed(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerShutdown:
    """``run`` returns when the process may end. Times are seconds of ``clock``, a monotonic clock.

    ``max_flush`` limits the last flush. It is None if only a second signal or the platform ends the process: what is in
    memory is on other replicas at best, so the broker writes it as long as it may.
    """

    registry: SegmentRegistry
    session: Session
    flusher: TailWriter
    seal_fenced: Callable[[], None]
    """Seals the fenced segments: nothing else writes their tails."""
    accepting_batches: Event
    has_leader: bool
    leader_timeout: float
    grace: float
    max_flush: float | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    recovered: RecoveredTails | None = None
    """What only this process can seal while there is no leader."""

    def run(self) -> None:
        log.info("broker.shutdown_started", segments=len(self.registry.all()))
        try:
            self.registry.drain()
        except Exception:
            log.exception("broker.drain_failed")
        if self._wait_until_sealed():
            self._wait_until_seals_are_found()
        else:
            self.accepting_batches.clear()
            self._flush()
        if self.recovered:
            self.recovered.drop_sealed()  # the next process may never start, and logs that are left look unsealed
        log.info("broker.shutdown_completed", sealed=self.session.may_leave.is_set())

    def _wait_until_sealed(self) -> bool:
        """Serves until the leader has sealed the segments here. False if there is no leader, or after a timeout."""
        began = self.clock()
        while not self.session.may_leave.is_set():
            now = self.clock()
            last_answer_at = max(self.session.answered_at, began) if self.has_leader else began
            if now - last_answer_at > self.leader_timeout or now - began > self.grace:
                return False
            self.sleep(MAY_LEAVE_CHECK_SECONDS)
        return True

    def _wait_until_seals_are_found(self) -> None:
        """The leader may know earlier than this process that others have sealed what is in its former journals."""
        began = self.clock()
        while self.recovered and self.recovered.waiting() and self.clock() - began < FIND_SEALS_SECONDS:
            self.sleep(MAY_LEAVE_CHECK_SECONDS)

    def _flush(self) -> None:
        """Repeats the last flush until all is written, because the filer may refuse or time out at first."""
        log.info("broker.flush_started")
        began = seal_at = self.clock()
        failed = False
        while True:
            waiting: list[str] = []
            try:
                waiting = self.flusher.flush_all() + (self.recovered.waiting() if self.recovered else [])
                if not waiting:
                    return
                if self.clock() >= seal_at:
                    seal_at = self.clock() + SEAL_RETRY_SECONDS
                    self.seal_fenced()
                log.debug("broker.flush_pending", segments=waiting)
            except Exception:
                if not failed:
                    log.exception("broker.flush_failed")
                failed = True
            if self.max_flush is not None and self.clock() - began > self.max_flush:
                log.error("broker.flush_incomplete", segments=waiting)
                return
            self.sleep(FLUSH_CHECK_SECONDS)
