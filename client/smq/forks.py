"""What becomes of clients in a process that was forked: its calls raise an error.

A fork has none of the threads that send and receive, and may have locks that nobody releases. Without an error,
messages would vanish there, and a call would wait for ever.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from functools import cache
from typing import Any, Protocol

from smq_core.errors import InvalidRequest

log = logging.getLogger(__name__)


class Tracked(Protocol):
    """An object with which a fork can do nothing."""

    def close(self) -> None: ...


class EndsInFork(Protocol):
    """What waits for outcomes, which never come in a fork."""

    def end_in_fork(self, error: InvalidRequest) -> None: ...


_tracked: weakref.WeakKeyDictionary[Any, weakref.ref[EndsInFork] | None] = weakref.WeakKeyDictionary()


# The process of which this one is a fork, if it had a client before.
_parent: int | None = None


def track(opened: Tracked, inside: EndsInFork | None = None) -> None:
    """From now on every use of ``opened`` in a fork of this process raises InvalidRequest. Its ``close`` does nothing.

    A fork calls ``inside.end_in_fork`` with that error. ``inside`` is a part of ``opened``, and lives as long.
    """
    _register()
    _tracked[opened] = None if inside is None else weakref.ref(inside)


@cache
def _register() -> None:
    os.register_at_fork(after_in_child=_end_in_fork)


def renew(lock: threading.Lock) -> None:
    """Releases a lock in a fork, where its holder may be a thread that does not exist."""
    lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the locks of the standard library are


def check_process() -> None:
    """Raises InvalidRequest in a fork of a process that had a client: connections do not work there."""
    if _parent is not None:
        raise error_in_fork("library", _parent)


def _end_in_fork() -> None:
    global _parent
    _parent = parent = os.getppid()
    opened = [(it, type(it), inside) for it, inside in _tracked.items()]
    for one, kind, _ in opened:  # first, because nothing may prevent that a use is an error
        one.__class__ = _class_in_fork(kind, parent)
    for _, kind, inside in opened:
        part = None if inside is None else inside()
        if part is not None:
            try:
                part.end_in_fork(error_in_fork(kind.__name__, parent))
            except Exception:
                log.exception("the deliveries of a %s could not be ended in this fork", kind.__name__)
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

    members = {"__getattribute__": get, "__repr__": lambda _: f"<{opened.__name__} of process {parent}>"}
    return type(opened.__name__, (opened,), members)


def _do_nothing(*_: object) -> None: ...
