"""Tasks that are repeated until they succeed, without a clock."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from smq.consuming import consumer_monitor
from smq.consuming.consumer_monitor import RETRY_AFTER_SECONDS, ConsumerMonitor, MonitorThread, RepeatedTask
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


def quick_monitor(
    check: Callable[[float, float], None], *tasks: RepeatedTask, thread: MonitorThread
) -> ConsumerMonitor:
    monitor = ConsumerMonitor("monitor", check, tasks, thread)
    monitor.start()
    return monitor


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_monitor, "MONITOR_INTERVAL_SECONDS", 0.001)


def test_the_monitor_goes_on_after_an_unexpected_error(caplog: pytest.LogCaptureFixture) -> None:
    def check(now: float, late_by: float) -> None:
        checks.append(now)
        raise KeyError("a bug")

    checks: list[float] = []
    work = Work()
    monitor = quick_monitor(check, RepeatedTask("it failed", work.run, due=True), thread=MonitorThread())
    try:
        eventually(lambda: len(checks) > 1 and work.runs == 1, "the next check, and the work")
    finally:
        monitor.close()
        monitor.join(60)
    assert work.runs == 1
    assert "KeyError: 'a bug'" in caplog.text


def test_consumers_share_a_thread_that_ends_with_the_last_of_them() -> None:
    threads: dict[str, set[threading.Thread]] = {"one": set(), "two": set()}
    shared = MonitorThread()
    monitors = [
        quick_monitor(lambda now, late, seen=seen: seen.add(threading.current_thread()), thread=shared)  # type: ignore[misc]
        for seen in threads.values()
    ]
    eventually(lambda: threads["one"] and threads["two"], "both are checked")
    assert threads["one"] == threads["two"] and len(threads["one"]) == 1
    monitors[0].close()
    (thread,) = threads["two"]
    assert thread.is_alive()
    monitors[1].close()
    eventually(lambda: not thread.is_alive(), "the thread ends")
    again = quick_monitor(lambda now, late: threads["one"].add(threading.current_thread()), thread=shared)
    eventually(lambda: len(threads["one"]) == 2, "a later consumer is checked, too")
    again.close()


def test_a_consumer_that_follows_the_last_one_at_once_gets_its_thread() -> None:
    shared = MonitorThread()
    threads: list[threading.Thread] = []
    for _ in range(3):
        monitor = quick_monitor(lambda now, late: threads.append(threading.current_thread()), thread=shared)
        eventually(lambda: bool(threads), "it is checked")
        threads.clear()
        monitor.close()
    last = quick_monitor(lambda now, late: threads.append(threading.current_thread()), thread=shared)
    eventually(lambda: len(threads) > 20, "it is checked")
    living = {it for it in threads if it.is_alive()}
    last.close()
    assert len(living) == 1


def test_a_task_that_hangs_does_not_delay_the_checks_of_any_consumer() -> None:
    hangs, checked = threading.Event(), threading.Event()
    started: list[float] = []

    def run() -> None:
        started.append(0.0)
        hangs.wait(60)

    def check(now: float, late_by: float) -> None:
        if started:
            checked.set()

    shared = MonitorThread()
    monitors = [
        quick_monitor(lambda now, late: None, RepeatedTask("it hangs", run, due=True), thread=shared),
        quick_monitor(check, thread=shared),
    ]
    try:
        assert checked.wait(60)
        assert len(started) == 1
    finally:
        hangs.set()
        for monitor in monitors:
            monitor.close()
            monitor.join(60)


def test_without_more_threads_the_checks_go_on_and_the_task_stays_due(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[float] = []
    work = Work()
    task = RepeatedTask("later", work.run)
    monitor = quick_monitor(lambda now, late: checks.append(now), task, thread=MonitorThread())
    eventually(lambda: bool(checks), "the first check")
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_more_threads)
        task.due = True
        seen = len(checks)
        eventually(lambda: len(checks) > seen + 3, "the checks go on")
        assert task.due
    eventually(lambda: work.runs == 1, "the task runs when there are threads again")
    monitor.close()
    monitor.join(60)


def no_more_threads(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_closed_monitor_is_not_called_again() -> None:
    calls: list[float] = []
    shared = MonitorThread()
    other = quick_monitor(lambda now, late: None, thread=shared)
    monitor = quick_monitor(lambda now, late: calls.append(now), thread=shared)
    eventually(lambda: bool(calls), "the first call")
    monitor.close()
    monitor.run_due(1.0, 0.0)
    seen = len(calls)
    other_calls = RepeatedTask("later", lambda: None, due=True)
    last = quick_monitor(lambda now, late: None, other_calls, thread=shared)
    eventually(lambda: not other_calls.due, "the thread has gone round")
    assert len(calls) <= seen + 1  # one call may have begun before
    for it in (other, last):
        it.close()
