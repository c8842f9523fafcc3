"""Work that runs beside the reconcile loop, for as long as this process leads.

A task ends only if it is done or the leader stops. A background task that fails is restarted with a backoff, and is a
problem of the leader until it has run for a while. A task that must not be restarted ends the process, so that another
operator leads, or Kubernetes restarts this one. So no leader runs without one of its functions and says nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from smq_operator.runtime.problems import LeaderProblems

log = structlog.get_logger(__name__)

INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 30.0
# A restarted task that runs for this long works again.
HEALTHY_AFTER_SECONDS = 60.0
ONE_OFF, CALLBACK = "one-off", "callback"
"""The names under which failures without a background task are counted."""


class TaskFailed(Exception):
    """A background task failed that must not be restarted."""


class TaskRunner:
    """Starts tasks, supervises those that run in the background, and ends all together. Use it on the event loop.

    ``failures`` counts failures by name. ``on_fatal`` is called when this process must end, with ``failure`` set.
    """

    def __init__(self, problems: LeaderProblems | None = None, on_fatal: Callable[[], None] = lambda: None) -> None:
        self.problems = problems if problems is not None else LeaderProblems()
        self.failures: Counter[str] = Counter()
        self.failure: TaskFailed | None = None
        self._on_fatal = on_fatal
        self._running: set[asyncio.Task[None]] = set()
        self._supervised: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        """Whether nothing runs but what is supervised."""
        return self._running <= self._supervised

    def spawn(self, work: Coroutine[Any, Any, None], then: Callable[[], None] | None = None) -> asyncio.Task[None]:
        """Starts ``work``; ``then`` is called when it has ended, whether it failed or not.

        Set what the end of ``work`` resets after this call, because nothing resets it if the task cannot be started.
        """
        try:
            task = asyncio.ensure_future(work)
        except BaseException:
            work.close()
            raise
        self._running.add(task)
        task.add_done_callback(partial(self._done, then))
        return task

    def supervise(
        self, name: str, run: Callable[[], Coroutine[Any, Any, None]], *, restart: bool = True
    ) -> asyncio.Task[None]:
        """Runs ``run()`` in the background. If it fails it is run again, after a backoff; it must not end by itself.

        With ``restart`` False it may end by itself, and the process ends if it fails.
        """
        task = self.spawn(self._restart(name, run) if restart else self._run_once(name, run))
        self._supervised.add(task)
        return task

    def record_failure(self, name: str, error: BaseException) -> None:
        """Counts and logs an unexpected failure."""
        self.failures[name] += 1
        log.error("task.failed", task=name, exc_info=error)

    def on_callback_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The event loop's exception handler, for errors of callbacks, which belong to no task."""
        error = context.get("exception")
        if isinstance(error, BaseException):
            self.record_failure(CALLBACK, error)
        else:
            log.error("event_loop.error", message=context.get("message", ""))

    async def stop(self) -> None:
        """Cancels every task and waits until it has ended."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _restart(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop, where, backoff = asyncio.get_running_loop(), f"task {name}", INITIAL_BACKOFF_SECONDS
        while True:
            began = loop.time()
            healthy = loop.call_later(HEALTHY_AFTER_SECONDS, self.problems.clear, where)
            try:
                await run()
                raise TaskFailed(f"the background task {name} ended, though it should run while this process leads")
            except asyncio.CancelledError as error:
                if _is_stopping():
                    raise
                failure: BaseException = error
            except Exception as error:
                failure = error
            finally:
                healthy.cancel()
            self.record_failure(name, failure)
            if loop.time() - began >= HEALTHY_AFTER_SECONDS:
                backoff = INITIAL_BACKOFF_SECONDS
            self.problems.report(
                where,
                f"the leader's background task {name} failed ({_describe(failure)}) and is restarted every few seconds "
                "until it works again. The leader's log has the details",
            )
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)

    async def _run_once(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await run()
        except asyncio.CancelledError as error:
            if _is_stopping():
                raise
            self._end_process(name, error)
        except Exception as error:
            self._end_process(name, error)

    def _end_process(self, name: str, error: BaseException) -> None:
        self.record_failure(name, error)
        if self.failure is None:
            self.failure = TaskFailed(f"the task {name} failed ({_describe(error)}): this process ends, restart it")
        self._on_fatal()

    def _done(self, then: Callable[[], None] | None, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._supervised.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.record_failure(ONE_OFF, error)
        if then is not None:
            then()


def _is_stopping() -> bool:
    """Whether this task was cancelled, rather than something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
