"""What runs beside a client's consumers: one thread checks their streams, others repeat what failed.

A thread that wakes ten times a second costs more by its waking than by what it does then, so all consumers of a client
share it. It never waits for anything else: a task that reads from the filer gets a separate thread for as long as it
runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ParamSpec

from smq_core.errors import SmqError
from smq_storage.process.locks import make_lock

log = logging.getLogger(__name__)

P = ParamSpec("P")

MONITOR_INTERVAL_SECONDS = 0.1
RETRY_AFTER_SECONDS = 0.5


@dataclass(slots=True)
class RepeatedTask:
    """Work that is done when it is due, and again after a pause when it fails. ``name`` is for the log.

    It is due again after ``run`` has raised, and also if it was made due while it ran. Times are monotonic seconds.
    """

    name: str
    run: Callable[[], None]
    due: bool = False
    may_run: Callable[[], bool] = lambda: True
    on_failure: Callable[[SmqError, float], None] = lambda error, since: None
    _retry_at: float = 0.0

    def is_due(self, now: float) -> bool:
        """Whether ``run_if_due`` would run it."""
        return self.due and now >= self._retry_at and self.may_run()

    def run_if_due(self, now: float) -> None:
        """Raises what ``run`` does, unless it is a SmqError."""
        if not self.is_due(now):
            return
        self.due = False
        try:
            self.run()
        except Exception as error:
            self.due, self._retry_at = True, now + RETRY_AFTER_SECONDS
            if not isinstance(error, SmqError):
                raise
            self.on_failure(error, now)
            log.info("%s: %s", self.name, error.message)


class ConsumerMonitor:
    """Has ``check(now, late_by)`` called ten times a second, in monotonic seconds, and runs the tasks that are due.

    ``check`` must not wait for anything. ``late_by``: how many seconds too late it is called. ``thread`` is shared by
    the consumers of a client.
    """

    def __init__(
        self, name: str, check: Callable[[float, float], None], tasks: Iterable[RepeatedTask], thread: MonitorThread
    ) -> None:
        self._name = name
        self._check = check
        self._tasks = tuple(tasks)
        self._thread = thread
        self._closing = threading.Event()
        self._lock = make_lock()
        self._worker: threading.Thread | None = None
        """Runs the tasks that are due. Only the shared thread starts one, with the lock."""

    def start(self) -> None:
        self._thread.add(self)

    def wait_for_close(self, seconds: float) -> bool:
        """Waits for ``seconds``, or until ``close``. True if that was called."""
        return self._closing.wait(seconds)

    def close(self) -> None:
        """Ends the calls soon, and starts no more tasks. See ``join``."""
        with self._lock:
            self._closing.set()
        self._thread.remove(self)

    def join(self, timeout: float) -> None:
        """Waits for the tasks that run."""
        worker = self._worker
        if worker is not None:
            worker.join(timeout)

    def run_due(self, now: float, late_by: float) -> None:
        """Checks, and starts what is due. Called by the shared thread."""
        if self._closing.is_set():
            return
        self._call(self._check, now, late_by)
        self._call(self._start_due, now)

    def _start_due(self, now: float) -> None:
        """Raises RuntimeError if the system starts no more threads; the tasks stay due."""
        is_busy = self._worker is not None and self._worker.is_alive()
        if is_busy or not any(task.is_due(now) for task in self._tasks):
            return
        with self._lock:
            if not self._closing.is_set():
                worker = threading.Thread(target=self._run_tasks, args=(now,), name=self._name, daemon=True)
                worker.start()
                self._worker = worker

    def _run_tasks(self, now: float) -> None:
        for task in self._tasks:
            if not self._closing.is_set():
                self._call(task.run_if_due, now)

    def _call(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Logs an unexpected error. It must not end the thread that looks after the streams."""
        try:
            call(*args, **kwargs)
        except Exception:
            log.exception("%s failed and goes on", self._name)


class MonitorThread:
    """One thread for the monitors of a client's consumers. It runs while there are any. Safe from many threads."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self._monitors: tuple[ConsumerMonitor, ...] = ()
        self._is_running = False

    def add(self, monitor: ConsumerMonitor) -> None:
        """Raises RuntimeError if the system starts no more threads."""
        with self._lock:
            if not self._is_running:
                threading.Thread(target=self._run, name="smq-consumer-monitor", daemon=True).start()
                self._is_running = True
            self._monitors += (monitor,)

    def remove(self, monitor: ConsumerMonitor) -> None:
        """Repeatable."""
        with self._lock:
            self._monitors = tuple(it for it in self._monitors if it is not monitor)

    def _run(self) -> None:
        due = time.monotonic() + MONITOR_INTERVAL_SECONDS
        while True:
            time.sleep(MONITOR_INTERVAL_SECONDS)
            with self._lock:
                monitors = self._monitors
                if not monitors:
                    self._is_running = False
                    return
            now = time.monotonic()
            for monitor in monitors:
                monitor.run_due(now, now - due)
            due = now + MONITOR_INTERVAL_SECONDS
