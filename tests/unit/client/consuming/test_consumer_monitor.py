"""Tasks that are repeated until they succeed, without a clock."""

from __future__ import annotations

import pytest

from smq.consuming import consumer_monitor
from smq.consuming.consumer_monitor import RETRY_AFTER_SECONDS, ConsumerMonitor, RepeatedTask
from smq_core.errors import Unavailable
from support.waiting import eventually


class Work:
    """Fails as often as it is told to, and then succeeds."""

    def __init__(self, failures: int = 0) -> None:
        self.left = failures
        self.runs = 0
        self.failed_at: list[float] = []

    def run(self) -> None:
        self.runs += 1
        if self.left:
            self.left -= 1
            raise Unavailable("away")

    def failed(self, error: Exception, at: float) -> None:
        self.failed_at.append(at)


def test_a_task_runs_once_when_it_is_due() -> None:
    work = Work()
    task = RepeatedTask("it failed", work.run)
    task.run_if_due(1.0)
    assert work.runs == 0
    task.due = True
    task.run_if_due(2.0)
    task.run_if_due(3.0)
    assert work.runs == 1


def test_a_task_that_failed_is_repeated_after_a_pause() -> None:
    work = Work(failures=1)
    task = RepeatedTask("it failed", work.run, due=True, on_failure=work.failed)
    task.run_if_due(1.0)
    assert task.due and work.failed_at == [1.0]
    task.run_if_due(1.0 + RETRY_AFTER_SECONDS / 2)
    assert work.runs == 1
    task.run_if_due(1.0 + RETRY_AFTER_SECONDS)
    assert work.runs == 2 and not task.due


def test_a_task_waits_until_it_may_run() -> None:
    work, allowed = Work(), [False]
    task = RepeatedTask("it failed", work.run, due=True, may_run=lambda: allowed[0])
    task.run_if_due(1.0)
    assert work.runs == 0 and task.due
    allowed[0] = True
    task.run_if_due(2.0)
    assert work.runs == 1


def test_what_makes_a_task_due_while_it_runs_is_not_lost() -> None:
    def run() -> None:
        runs.append(task)
        task.due = len(runs) == 1

    runs: list[RepeatedTask] = []
    task = RepeatedTask("it failed", run, due=True)
    task.run_if_due(1.0)
    assert task.due
    task.run_if_due(2.0)
    assert len(runs) == 2 and not task.due


def test_an_unexpected_error_is_raised_and_the_task_stays_due() -> None:
    def run() -> None:
        raise KeyError("a bug")

    task = RepeatedTask("it failed", run, due=True)
    with pytest.raises(KeyError):
        task.run_if_due(1.0)
    assert task.due


def test_the_monitor_goes_on_after_an_unexpected_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def check(now: float, late_by: float) -> None:
        checks.append(now)
        raise KeyError("a bug")

    checks: list[float] = []
    monkeypatch.setattr(consumer_monitor, "MONITOR_INTERVAL_SECONDS", 0.001)
    work = Work()
    monitor = ConsumerMonitor("monitor", check, [RepeatedTask("it failed", work.run, due=True)])
    monitor.start()
    try:
        eventually(lambda: len(checks) > 1, "the next check")
    finally:
        monitor.close()
        monitor.join(60)
    assert work.runs == 1
    assert "KeyError: 'a bug'" in caplog.text
