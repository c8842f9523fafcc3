"""What becomes of clients in a process that was forked: its calls raise an error.

A fork has none of the threads that send and receive, and may have locks that nobody releases. Without an error,
messages would vanish there, and a call would wait for ever.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeVar

from smq_core.errors import InvalidRequest


class Tracked(Protocol):
    """An object with which a fork can do nothing."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Tracked)

_tracked: weakref.WeakKeyDictionary[Any, Callable[[Any, InvalidRequest], None] | None] = weakref.WeakKeyDictionary()


_parent: int | None = None
"""The process of which this one is a fork, if it had a client before."""


def track(opened: T, end_in_fork: Callable[[T, InvalidRequest], None] | None = None) -> None:
    """From now on every use of ``opened`` in a fork of this process raises InvalidRequest. Its ``close`` does nothing.

    Before that, a fork calls ``end_in_fork`` with ``opened`` and the error.
    """
    _register()
    _tracked[opened] = end_in_fork


@cache
def _register() -> None:
    os.register_at_fork(after_in_child=_end_in_fork)


def check_process() -> None:
    """Raises InvalidRequest in a fork of a process that had a client: connections do not work there."""
    if _parent is not None:
        raise error_in_fork("library", _parent)


def _end_in_fork() -> None:
    global _parent
    _parent = parent = os.getppid()
    for opened, end_in_fork in list(_tracked.items()):
        if end_in_fork is not None:
            end_in_fork(opened, error_in_fork(type(opened).__name__, parent))
        opened.__class__ = _class_in_fork(type(opened), parent)
    _tracked.clear()


def error_in_fork(name: str, parent: int) -> InvalidRequest:
    return InvalidRequest(
        f"this {name} belongs to process {parent}, and process {os.getpid()} is a fork of it, without the threads that "
        "send and receive, and gRPC makes no connections in it. Start processes by 'spawn' or 'forkserver', or fork "
        "before the first smq.connect()"
    )


def _class_in_fork(opened: type, parent: int) -> type:
    """A class of the same name whose objects raise errors. So no call costs anything where there is no fork."""

    def get(self: object, name: str) -> object:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        if name == "closed":
            return True
        if name in ("close", "_close"):
            return _do_nothing
        raise error_in_fork(opened.__name__, parent)

    members = {
        "__getattribute__": get,
        "__repr__": lambda _: f"<{opened.__name__} of process {parent}>",
    }
    return type(opened.__name__, (opened,), members)


def _do_nothing(*_: object) -> None: ...
