"""Tasks that are repeated until they succeed, without a clock."""

from __future__ import annotations

import pytest

from smq.consuming.consumer_monitor import RETRY_AFTER_SECONDS, RepeatedTask
from smq_core.errors import Unavailable


class Work:
    """Fails as often as it is told to, and then succeeds."""

    def __init__(self, failures: int = 0) -> None:
        self.left = failures
        self.runs: list[float] = []
        self.failed_at: list[float] = []

    def run(self, now: float) -> None:
        self.runs.append(now)
        if self.left:
            self.left -= 1
            raise Unavailable("away")

    def failed(self, error: Exception, at: float) -> None:
        self.failed_at.append(at)


def test_a_task_runs_once_when_it_is_due() -> None:
    work = Work()
    task = RepeatedTask("it failed", work.run)
    task.run_if_due(1.0)
    assert work.runs == []
    task.due = True
    task.run_if_due(2.0)
    task.run_if_due(3.0)
    assert work.runs == [2.0]


def test_a_task_that_failed_is_repeated_after_a_pause() -> None:
    work = Work(failures=1)
    task = RepeatedTask("it failed", work.run, due=True, on_failure=work.failed)
    task.run_if_due(1.0)
    assert task.due and work.failed_at == [1.0]
    task.run_if_due(1.0 + RETRY_AFTER_SECONDS / 2)
    assert work.runs == [1.0]
    task.run_if_due(1.0 + RETRY_AFTER_SECONDS)
    assert work.runs == [1.0, 1.0 + RETRY_AFTER_SECONDS] and not task.due


def test_a_task_waits_until_it_may_run() -> None:
    work, allowed = Work(), [False]
    task = RepeatedTask("it failed", work.run, due=True, may_run=lambda: allowed[0])
    task.run_if_due(1.0)
    assert work.runs == [] and task.due
    allowed[0] = True
    task.run_if_due(2.0)
    assert work.runs == [2.0]


def test_what_makes_a_task_due_while_it_runs_is_not_lost() -> None:
    def run(now: float) -> None:
        runs.append(now)
        task.due = len(runs) == 1

    runs: list[float] = []
    task = RepeatedTask("it failed", run, due=True)
    task.run_if_due(1.0)
    assert task.due
    task.run_if_due(2.0)
    assert runs == [1.0, 2.0] and not task.due


def test_an_unexpected_error_is_not_taken_for_something_that_passes() -> None:
    def run(now: float) -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        RepeatedTask("it failed", run, due=True).run_if_due(1.0)
