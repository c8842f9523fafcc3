"""How a broker leaves: it waits for its leader, or writes its tails until they are written. In virtual time."""

from __future__ import annotations

import threading

import pytest

from smq_broker.segments.registry import SegmentRegistry
from smq_broker.shutdown import BrokerShutdown

LEADER_TIMEOUT, GRACE = 5.0, 110.0


class LeavingBroker:
    """Sleeping moves the clock. The leader answers until ``answers_until``, and has sealed all at ``sealed_at``.

    The last flush needs ``flushes`` attempts, of which the first ``failing`` raise.
    """

    def __init__(self, answers_until: float = 0.0, sealed_at: float = 1e9, flushes: int = 1, failing: int = 0) -> None:
        self.now = self.answered_at = 0.0
        self.may_leave = threading.Event()
        self.accepting_batches = threading.Event()
        self.accepting_batches.set()
        self.flush_attempts = self.seal_requests = 0
        self.accepted_while_flushing = False
        self.dropped_sealed_at: float | None = None
        self.seal_found_at = 0.0
        """When this process learns that what is in its former journal is sealed."""
        self._answers_until, self._sealed_at = answers_until, sealed_at
        self._flushes, self._failing = flushes, failing
        self.registry = SegmentRegistry("me", on_drain=lambda: None)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now <= self._answers_until:
            self.answered_at = self.now
        if self.now >= self._sealed_at:
            self.may_leave.set()

    def flush_all(self) -> list[str]:
        self.flush_attempts += 1
        self.accepted_while_flushing = self.accepted_while_flushing or self.accepting_batches.is_set()
        if self.flush_attempts <= self._failing:
            raise ValueError("unexpected")
        return ["t-0-1024-0"] if self.flush_attempts < self._flushes else []

    def seal_fenced(self) -> None:
        self.seal_requests += 1

    def waiting(self) -> list[str]:
        return ["t-0-1024-0"] if self.now < self.seal_found_at else []

    def drop_sealed(self) -> None:
        self.dropped_sealed_at = self.now

    def leave(self, *, has_leader: bool = True, max_flush: float | None = None) -> None:
        BrokerShutdown(
            registry=self.registry,
            session=self,
            flusher=self,
            seal_fenced=self.seal_fenced,
            accepting_batches=self.accepting_batches,
            has_leader=has_leader,
            leader_timeout=LEADER_TIMEOUT,
            grace=GRACE,
            max_flush=max_flush,
            clock=lambda: self.now,
            sleep=self.sleep,
            recovered=self,
        ).run()


def test_it_leaves_when_the_leader_has_sealed_its_segments() -> None:
    broker = LeavingBroker(answers_until=1e9, sealed_at=60.0)
    broker.leave()
    assert broker.now == pytest.approx(60.0, abs=0.2)
    assert not broker.flush_attempts, "there is nothing left to write"
    assert broker.accepting_batches.is_set(), "it serves until then"
    assert broker.registry.draining


def test_the_logs_that_are_sealed_are_dropped_last() -> None:
    broker = LeavingBroker(answers_until=200.0, sealed_at=30.0)
    broker.leave()
    assert broker.dropped_sealed_at == broker.now >= 30.0


@pytest.mark.parametrize(("found_at", "ends_at"), [(31.0, 31.0), (1e9, 35.0)])
def test_it_waits_a_moment_for_seals_that_only_the_leader_knows(found_at: float, ends_at: float) -> None:
    broker = LeavingBroker(answers_until=1e9, sealed_at=30.0)
    broker.seal_found_at = found_at
    broker.leave()
    assert broker.dropped_sealed_at == pytest.approx(ends_at, abs=0.2)
    assert not broker.flush_attempts


def test_answers_of_the_leader_keep_it() -> None:
    broker = LeavingBroker(answers_until=30.0)
    broker.leave()
    assert broker.flush_attempts and broker.now == pytest.approx(30.0 + LEADER_TIMEOUT, abs=0.3)


def test_without_a_leader_it_waits_a_moment() -> None:
    broker = LeavingBroker()
    broker.leave(has_leader=False)
    assert broker.flush_attempts and broker.now == pytest.approx(LEADER_TIMEOUT, abs=0.3)


def test_it_waits_no_longer_than_its_grace() -> None:
    broker = LeavingBroker(answers_until=1e9)
    broker.leave()
    assert broker.flush_attempts and broker.now == pytest.approx(GRACE, abs=0.3)


def test_it_accepts_nothing_more_before_the_last_flush() -> None:
    broker = LeavingBroker(flushes=3)
    broker.leave()
    assert not broker.accepting_batches.is_set() and not broker.accepted_while_flushing


@pytest.mark.parametrize("failing", [0, 1, 5])
def test_the_last_flush_is_repeated_until_all_is_written(failing: int) -> None:
    broker = LeavingBroker(flushes=2000, failing=failing)
    broker.leave()
    assert broker.flush_attempts == 2000
    assert broker.seal_requests > 10, "fenced segments are sealed, and that is repeated too"


def test_after_a_failure_the_last_flush_has_an_end() -> None:
    broker = LeavingBroker(flushes=1_000_000)
    broker.leave(max_flush=30.0)
    assert broker.now == pytest.approx(LEADER_TIMEOUT + 30.0, abs=0.5)


def test_an_error_of_the_drain_does_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("unexpected")

    broker = LeavingBroker(flushes=2)
    monkeypatch.setattr(broker.registry, "drain", fail)
    broker.leave()
    assert broker.flush_attempts == 2
