"""All threads of the broker follow one rule when they cannot start, fail, or die."""

from __future__ import annotations

import threading

import pytest
from prometheus_client import CollectorRegistry

from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import RestartPolicy, Task, ThreadSupervisor, spawn_daemon
from smq_core.errors import Unavailable
from support.waiting import HANG_GUARD


class Threads:
    """A supervisor whose ``start``-th thread cannot be started, on a clock that stands still."""

    def __init__(self, start: int = 0) -> None:
        self.registry = CollectorRegistry()
        self.now = 0.0
        self._left = start
        self.started: list[threading.Thread] = []
        self.supervisor = ThreadSupervisor(
            BrokerMetrics(self.registry),
            spawn=self._spawn,
            restart_policy=RestartPolicy(max_failures=3, window_seconds=60, pause_seconds=0),
            clock=lambda: self.now,
        )

    def _spawn(self, run: object, name: str) -> threading.Thread:
        self._left -= 1
        if self._left == 0:
            raise RuntimeError("can't start new thread")
        self.started.append(spawn_daemon(run, name))  # type: ignore[arg-type]
        return self.started[-1]

    def failures(self, kind: str) -> float:
        return self.registry.get_sample_value("smq_thread_failures_total", {"thread": kind}) or 0

    def join(self) -> None:
        for thread in self.started:
            thread.join(HANG_GUARD)
            assert not thread.is_alive()


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_all_threads_start_or_none_runs(failing: int) -> None:
    threads = Threads(failing)
    ran: list[int] = []
    tasks = [Task(kind="work", run=lambda n=n: ran.append(n)) for n in range(3)]  # type: ignore[misc]
    with pytest.raises(Unavailable, match="can't start new thread"):
        threads.supervisor.start_all(tasks)
    threads.join()
    assert ran == [] and threads.failures("work") == 1
    threads.supervisor.start_all(tasks)
    threads.join()
    assert sorted(ran) == [0, 1, 2]
    assert threads.supervisor.process_failure is None


def test_a_thread_that_fails_runs_again() -> None:
    threads = Threads()
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise ValueError("once")

    threads.supervisor.start(Task(kind="work", run=run))
    threads.join()
    assert len(runs) == 3 and threads.failures("work") == 2
    assert threads.supervisor.process_failure is None


def test_an_essential_thread_that_goes_on_failing_ends_the_process() -> None:
    threads = Threads()

    def run() -> None:
        raise ValueError("always")

    threads.supervisor.start(Task(kind="work", run=run, subject="7"))
    threads.join()
    assert threads.failures("work") == 3
    assert threads.supervisor.process_failure == "thread work-7 died (ValueError: always)"


def test_failures_that_are_far_apart_are_not_added_up() -> None:
    threads = Threads()
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        threads.now += 59
        if len(runs) < 20:
            raise ValueError("now and then")

    threads.supervisor.start(Task(kind="work", run=run))
    threads.join()
    assert len(runs) == 20 and threads.supervisor.process_failure is None


def test_an_endless_thread_that_returns_has_failed() -> None:
    threads = Threads()
    threads.supervisor.start(Task(kind="work", run=lambda: None, endless=True))
    threads.join()
    assert threads.supervisor.process_failure == "thread work died (it returned)"


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, MemoryError])
def test_what_depends_on_a_dead_thread_is_given_up(error: type[BaseException]) -> None:
    threads = Threads()
    given_up: list[str] = []

    def run() -> None:
        raise error("unexpected")

    threads.supervisor.start(Task(kind="work", run=run, on_death=lambda: given_up.append("segment"), restarts=False))
    threads.join()
    assert given_up == ["segment"] and threads.failures("work") == 1
    assert threads.supervisor.process_failure is None


def test_the_process_ends_if_nothing_can_be_given_up() -> None:
    threads = Threads()

    def fail() -> None:
        raise ValueError("unexpected")

    threads.supervisor.start(Task(kind="work", run=fail, on_death=fail))
    threads.join()
    assert "could not be given up: unexpected" in (threads.supervisor.process_failure or "")
