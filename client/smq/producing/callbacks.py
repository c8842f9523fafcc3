"""Delivery callbacks: they run in the threads that bring outcomes, so they must not wait for one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from smq_core.errors import InvalidRequest
from smq_storage.process.locks import requires_no_lock

# To be called once the lock is released.
Callbacks = list[Callable[[], None]]

_thread = threading.local()


class CallbacksAfter:
    """``with CallbacksAfter(), lock:``: callbacks of this thread run when the lock is released.

    They are code of the program. It may hold a lock for which they wait, and wait itself for this one.
    """

    def __enter__(self) -> None:
        self._outer: Callbacks | None = getattr(_thread, "waiting", None)
        _thread.waiting = []

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        waiting, _thread.waiting = _thread.waiting, self._outer
        run_callbacks(waiting)


def run_callbacks(callbacks: Callbacks) -> None:
    """The caller does not hold a lock, or is in the block of a :class:`CallbacksAfter`."""
    if not callbacks:
        return
    waiting: Callbacks | None = getattr(_thread, "waiting", None)
    if waiting is not None:
        waiting += callbacks
        return
    _call_all(callbacks)


@requires_no_lock
def _call_all(callbacks: Callbacks) -> None:
    outer = in_callback()
    _thread.in_callback = True
    try:
        for call in callbacks:
            call()
    finally:
        _thread.in_callback = outer


def in_callback() -> bool:
    """Whether this thread runs a delivery callback."""
    return getattr(_thread, "in_callback", False)


def refuse_to_wait() -> None:
    """Raises InvalidRequest in a callback."""
    if in_callback():
        raise InvalidRequest(
            "a delivery callback runs in a thread that brings outcomes, so it cannot wait for one: let another thread "
            "of the program call flush(), close() or result()"
        )
