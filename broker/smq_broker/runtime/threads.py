"""Starts every thread of the broker, and acts if one of them dies.

One rule holds for all threads. If a thread raises, that is logged and counted, and its task runs again after a pause.
If it fails again and again, it is dead: then its ``on_death`` gives up what depends on it (a stream, a segment).
Without a thread that has no ``on_death`` the process cannot work, so it ends in an orderly way. ``HealthServer`` says
why.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_core.errors import Unavailable
from smq_storage.thread_runtime import make_event, monotonic

# Starts a thread that runs the function, under a name. Raises if the system starts no more threads.
Spawn = Callable[[Callable[[], None], str], threading.Thread]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """A thread is dead after ``max_failures`` within ``window_seconds``. Until then it pauses and runs again."""

    max_failures: int = 5
    window_seconds: float = 60.0
    pause_seconds: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a thread runs. ``kind`` is its label in metrics, ``subject`` completes the name of the thread."""

    kind: str
    run: Callable[[], None]
    subject: str = ""
    on_death: Callable[[], None] | None = None
    endless: bool = False
    """``run`` never returns, so that its return is a failure too."""
    restarts: bool = True

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.subject}" if self.subject else self.kind


class ThreadSupervisor:
    """``process_failure`` says why the process has to end; None while all is well. Safe from many threads."""

    def __init__(
        self,
        broker_metrics: BrokerMetrics,
        *,
        spawn: Spawn | None = None,
        restart_policy: RestartPolicy | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._metrics = broker_metrics
        self._spawn = spawn or spawn_daemon
        self._policy = restart_policy or RestartPolicy()
        self._clock = clock
        self._process_failed = make_event()
        self.process_failure: str | None = None

    def start(self, task: Task) -> threading.Thread:
        """Raises Unavailable if the system starts no more threads. Nothing has run then."""
        return self.start_all([task])[0]

    def start_all(self, tasks: Sequence[Task]) -> list[threading.Thread]:
        """Starts all threads or none: no task runs before the last thread exists. Raises Unavailable."""
        gate = _Gate()
        started: list[threading.Thread] = []
        for task in tasks:
            try:
                started.append(self._spawn(partial(self._run_behind, gate, task), task.name))
            except Exception as error:
                gate.cancel()
                self._metrics.thread_failures.labels(task.kind).inc()
                log.error("thread.start_failed", thread=task.name, error=str(error))
                raise Unavailable(
                    f"this broker could not start a thread ({error}). It may have reached its limit of processes or "
                    "memory: try again, or raise the limit"
                ) from error
        gate.open()
        return started

    def record_failure(self, kind: str, message: str, **about: object) -> None:
        """Logs and counts the exception that is being handled, if the thread itself goes on with its next work."""
        self._metrics.thread_failures.labels(kind).inc()
        log.exception(message, thread=kind, **about)

    def end_process(self, reason: str) -> None:
        """The process cannot do its work any more: its main thread ends it. The first reason counts."""
        self.process_failure = self.process_failure or reason
        self._process_failed.set()

    def _run_behind(self, gate: _Gate, task: Task) -> None:
        if gate.wait():
            self._supervise(task)

    def _supervise(self, task: Task) -> None:
        failures: deque[float] = deque()
        policy = self._policy
        while True:
            reason = self._run_once(task)
            if reason is None:
                return
            now = self._clock()
            failures.append(now)
            while now - failures[0] > policy.window_seconds:
                failures.popleft()
            if not task.restarts or len(failures) >= policy.max_failures:
                self._died(task, reason)
                return
            self._process_failed.wait(policy.pause_seconds)

    def _run_once(self, task: Task) -> str | None:
        """Why the run failed, or None if it ended as it should."""
        try:
            task.run()
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            with suppress(Exception):
                self.record_failure(task.kind, "thread.failed", subject=task.subject)
            return reason
        if not task.endless:
            return None
        with suppress(Exception):
            self._metrics.thread_failures.labels(task.kind).inc()
            log.error("thread.failed", thread=task.kind, subject=task.subject, error="it returned")
        return "it returned"

    def _died(self, task: Task, reason: str) -> None:
        reason = f"thread {task.name} died ({reason})"
        if task.on_death is None:
            self.end_process(reason)
            return
        try:
            log.error("thread.died", thread=task.kind, subject=task.subject, reason=reason)
            task.on_death()
        except BaseException as error:
            self.end_process(f"{reason}, and what depends on it could not be given up: {error}")


class _Gate:
    """Keeps threads waiting until all of them exist."""

    def __init__(self) -> None:
        self._decided = make_event()
        self._opened = False

    def open(self) -> None:
        self._opened = True
        self._decided.set()

    def cancel(self) -> None:
        self._decided.set()

    def wait(self) -> bool:
        """True if the threads may run, False if they have to end."""
        self._decided.wait()
        return self._opened


def spawn_daemon(run: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
