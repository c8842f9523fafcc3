"""What becomes of background tasks and callbacks that fail: no function of the leader stops silently."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from smq_operator.runtime.listeners import Listeners
from smq_operator.runtime.task_runner import TaskRunner
from support.virtual_time import virtual_time
from support.waiting import wait_until


class Failing:
    """Fails at its first ``times`` starts, as ``error``, or by ending."""

    def __init__(self, times: int, error: BaseException | None = None) -> None:
        self.times, self.error = times, error
        self.starts = 0

    async def run(self) -> None:
        self.starts += 1
        if self.starts <= self.times:
            if self.error is not None:
                raise self.error
            return
        await asyncio.Event().wait()


@virtual_time
async def test_a_background_task_that_fails_is_restarted_and_is_a_problem_until_it_works():
    for error in (ValueError("broken"), asyncio.CancelledError(), None):
        tasks, work = TaskRunner(), Failing(3, error)
        began = asyncio.get_running_loop().time()
        tasks.supervise("cleanup", work.run)
        await wait_until(lambda work=work: work.starts == 4)
        assert asyncio.get_running_loop().time() - began >= 3.5, "0.5, 1 and 2 seconds of backoff"
        assert tasks.failures["cleanup"] == 3
        (problem,) = tasks.problems.all()
        assert problem.where == "task cleanup" and "restarted" in problem.message
        await wait_until(lambda tasks=tasks: not tasks.problems.all())
        assert tasks.idle and tasks.failure is None
        await tasks.stop()


@virtual_time
async def test_a_task_that_must_not_be_restarted_ends_the_process():
    ended: list[bool] = []
    tasks, work = TaskRunner(on_fatal=lambda: ended.append(True)), Failing(1, ValueError("broken"))
    tasks.supervise("election", work.run, restart=False)
    await wait_until(lambda: ended)
    assert "election" in str(tasks.failure) and "broken" in str(tasks.failure)
    assert work.starts == 1 and tasks.failures["election"] == 1


@virtual_time
async def test_a_task_that_must_not_be_restarted_may_end_by_itself():
    tasks = TaskRunner(on_fatal=lambda: 1 / 0)
    await tasks.supervise("election", Failing(1).run, restart=False)
    assert tasks.failure is None and not tasks.failures


@virtual_time
async def test_stopping_ends_the_tasks_and_restarts_none():
    tasks, work = TaskRunner(on_fatal=lambda: 1 / 0), Failing(0)
    running = [tasks.supervise("a", work.run), tasks.supervise("b", work.run, restart=False)]
    await wait_until(lambda: work.starts == 2)
    await tasks.stop()
    assert all(task.cancelled() for task in running)
    assert tasks.failure is None and not tasks.failures and work.starts == 2


@virtual_time
async def test_a_failing_listener_affects_no_other_and_is_called_again_with_the_state_of_that_time():
    listeners: Listeners[object] = Listeners()
    state, received = ["old"], []
    failures = [ValueError("a"), ValueError("b")]

    def first(value: str) -> None:
        if failures:
            raise failures.pop()
        received.append(("first", value))

    listeners.add(first)
    listeners.add(lambda value: received.append(("second", value)))
    listeners.notify("it", lambda listener: listener(state[0]))  # type: ignore[operator]
    assert received == [("second", "old")]
    state[0] = "new"
    await wait_until(lambda: len(received) == 2)
    assert received[1] == ("first", "new")
    loop = asyncio.get_running_loop()
    assert len(loop.failures) == 2, "both failures went to the loop's exception handler"  # type: ignore[attr-defined]


def test_errors_of_callbacks_are_counted() -> None:
    tasks = TaskRunner()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(tasks.on_callback_error)
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)

    with capture_logs() as logs:
        asyncio.run(main())
    assert tasks.failures["callback"] == 1
    assert logs[0]["event"] == "task.failed"
