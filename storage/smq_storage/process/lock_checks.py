"""Locks that report when a thread breaks a rule of ``locks``. Only tests use them.

A broken rule raises AssertionError, and is written to the file that ``CHECKS_VARIABLE`` names: the thread that meets
the error may only log it, and may be one of another process.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, cast

from smq_storage.process.locks import CHECKS_VARIABLE
from smq_storage.thread_runtime import RUNTIME

F = TypeVar("F", bound=Callable[..., Any])

STACK_FRAMES = 12


def _taken() -> list[CheckedLock]:
    """The locks that this thread holds, in the order in which it took them; a lock that it took twice is there once."""
    return RUNTIME.get().held_locks()


class CheckedLock:
    """A lock with a holder. It has what ``threading.Condition`` needs of a lock."""

    def __init__(self, place: IntEnum | None, made_at: str, *, reentrant: bool) -> None:
        self._lock: Any = RUNTIME.get().make_lock()
        self._place = place
        self._name = f"{type(place).__name__}.{place.name}" if place is not None else f"the leaf lock of {made_at}"
        self._reentrant = reentrant
        self._holder: list[CheckedLock] | None = None
        """The locks of the thread that holds this one."""
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self.is_held:
            if self._reentrant:
                self._count += 1
                return True
            if not blocking:
                return False
            if timeout < 0:
                _report(f"{self._name} is taken by the thread that holds it")
        elif blocking:  # otherwise nobody waits
            self._check_order()
        if not self._lock.acquire(blocking, timeout):
            return False
        self._holder, self._count = _taken(), 1
        self._holder.append(self)
        return True

    def release(self) -> None:
        if not self.is_held:
            _report(f"{self._name} is released by a thread that does not hold it")
        self._count -= 1
        if self._count == 0:
            self._leave()

    def locked(self) -> bool:
        return bool(self._lock.locked())

    @property
    def is_held(self) -> bool:
        """Whether this thread holds the lock."""
        return self._holder is not None and self._holder is _taken()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _leave(self) -> None:
        self._holder = None
        _taken().remove(self)
        self._lock.release()

    def _check_order(self) -> None:
        for other in _taken():
            if other._place is None or (type(other._place) is type(self._place) and other._place >= self._place):
                _report(f"{self._name} is taken after {other._name}")

    def _at_fork_reinit(self) -> None:
        self._lock._at_fork_reinit()
        self._holder, self._count = None, 0
        if self in _taken():
            _taken().remove(self)

    # ---- for conditions

    def _release_save(self) -> int:
        others = [lock._name for lock in _taken() if lock is not self]
        if others:
            _report(f"a thread waits with {self._name} while it holds {', '.join(others)}")
        count = self._count
        self._leave()
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._count = count

    def _is_owned(self) -> bool:
        return self.is_held


def checked_lock(place: IntEnum | None) -> threading.Lock:
    return cast(threading.Lock, CheckedLock(place, _caller(), reentrant=False))


def checked_rlock(place: IntEnum | None) -> threading.RLock:
    return cast(threading.RLock, CheckedLock(place, _caller(), reentrant=True))


def holder_check(name: str) -> Callable[[F], F]:
    """See ``requires_lock``."""
    find = attrgetter(name)

    def decorate(function: F) -> F:
        @wraps(function)
        def checked(subject: Any, *args: Any, **kwargs: Any) -> Any:
            lock = find(subject)
            lock = getattr(lock, "_lock", lock) if isinstance(lock, threading.Condition) else lock
            if not _is_held(lock):
                _report(f"{function.__qualname__} is called without {name}")
            return function(subject, *args, **kwargs)

        return cast(F, checked)

    return decorate


def _is_held(lock: Any) -> bool:
    if isinstance(lock, CheckedLock):
        return lock.is_held
    # A test may pass one of Python's own.
    return bool(lock._is_owned() if hasattr(lock, "_is_owned") else lock.locked())


def no_lock_check(function: F) -> F:
    """See ``requires_no_lock``."""

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if _taken():
            _report(f"{function.__qualname__} is called with {', '.join(lock._name for lock in _taken())}")
        return function(*args, **kwargs)

    return cast(F, checked)


def take_reports() -> str:
    """What was reported since the last call, by this process and those that it has started."""
    file = Path(os.environ[CHECKS_VARIABLE])
    if not file.exists() or not file.stat().st_size:
        return ""
    text = file.read_text()
    file.write_text("")
    return text


def _report(problem: str) -> None:
    stack = "".join(traceback.format_stack()[-STACK_FRAMES:-1])
    text = f"{problem}, in thread {threading.current_thread().name} of process {os.getpid()}:\n{stack}\n"
    with Path(os.environ[CHECKS_VARIABLE]).open("a") as file:
        file.write(text)
    raise AssertionError(f"{problem}; see docs/threads.md")


def _caller() -> str:
    """Where ``make_lock`` was called."""
    frame = sys._getframe(3)
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
