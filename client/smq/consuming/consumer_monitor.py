"""The thread beside a consumer: it looks after silent streams and repeats what failed because something was away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ParamSpec

from smq_core.errors import SmqError

log = logging.getLogger(__name__)

P = ParamSpec("P")

MONITOR_INTERVAL_SECONDS = 0.1
RETRY_AFTER_SECONDS = 0.5


@dataclass(slots=True)
class RepeatedTask:
    """Work that the monitor does when it is due, and again after a pause when it fails. ``name`` is for the log.

    It is due again after ``run`` has raised, and also if it was made due while it ran. Times are monotonic seconds.
    """

    name: str
    run: Callable[[], None]
    due: bool = False
    may_run: Callable[[], bool] = lambda: True
    on_failure: Callable[[SmqError, float], None] = lambda error, since: None
    _retry_at: float = 0.0

    def run_if_due(self, now: float) -> None:
        """Raises what ``run`` does, unless it is a SmqError."""
        if not self.due or now < self._retry_at or not self.may_run():
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
    """Calls ``check(now, late_by)`` ten times a second, in monotonic seconds, and runs the tasks that are due."""

    def __init__(self, name: str, check: Callable[[float, float], None], tasks: Iterable[RepeatedTask]) -> None:
        self._check = check
        self._tasks = tuple(tasks)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_for_close(self, seconds: float) -> bool:
        """Waits so long, or until ``close``. True if that was called."""
        return self._closing.wait(seconds)

    def close(self) -> None:
        """Ends the thread soon. See ``join``."""
        self._closing.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        due = time.monotonic() + MONITOR_INTERVAL_SECONDS
        while not self._closing.wait(MONITOR_INTERVAL_SECONDS):
            now = time.monotonic()
            self._call(self._check, now, now - due)
            due = now + MONITOR_INTERVAL_SECONDS
            for task in self._tasks:
                self._call(task.run_if_due, now)

    def _call(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Logs an unexpected error. Without this thread, nobody would look after the streams any more."""
        try:
            call(*args, **kwargs)
        except Exception:
            log.exception("%s failed and goes on", self._thread.name)
