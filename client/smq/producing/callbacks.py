"""Delivery callbacks: they run in the threads that bring outcomes, so they must not wait for one."""

from __future__ import annotations

import threading
from collections.abc import Callable

from smq_core.errors import InvalidRequest

# To be called once the lock is released.
Callbacks = list[Callable[[], None]]

_thread = threading.local()


def run_callbacks(callbacks: Callbacks) -> None:
    """The caller does not hold the lock, because callbacks are code of the program."""
    if not callbacks:
        return
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
