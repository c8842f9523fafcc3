"""Time and threads as the code of a process sees them.

Code that waits takes its clock, its pauses and what it waits for from here, and its locks from ``process.locks``. They
are those of the runtime of the thread that calls. It is Python's own, but in the simulation threads are virtual: time
passes only while all of them wait.
"""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any


class ThreadRuntime:
    """Python's own time and threads."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def make_lock(self) -> threading.Lock:
        return threading.Lock()

    def make_rlock(self) -> threading.RLock:
        return threading.RLock()

    def make_condition(self, lock: threading.Lock | threading.RLock) -> threading.Condition:
        return threading.Condition(lock)

    def make_event(self) -> threading.Event:
        return threading.Event()

    def make_queue(self) -> SimpleQueue[Any]:
        return SimpleQueue()

    def held_locks(self) -> list[Any]:
        """The locks that this thread holds, which checked locks keep here."""
        held: list[Any] = self._of_thread.__dict__.setdefault("held", [])
        return held


# A virtual thread has another one in its context.
RUNTIME: ContextVar[ThreadRuntime] = ContextVar("runtime", default=ThreadRuntime())  # noqa: B039


def monotonic() -> float:
    """Seconds of a clock that never goes back."""
    return RUNTIME.get().monotonic()


def sleep(seconds: float) -> None:
    RUNTIME.get().sleep(seconds)


def make_condition(lock: threading.Lock | threading.RLock) -> threading.Condition:
    """A condition of a lock of ``process.locks``."""
    return RUNTIME.get().make_condition(lock)


def make_event() -> threading.Event:
    return RUNTIME.get().make_event()


def make_queue() -> SimpleQueue[Any]:
    return RUNTIME.get().make_queue()
