"""The locks of clients and brokers. In tests they check the rules of docs/threads.md; elsewhere they are Python's own.

A lock is made with its place in its process's order, such as ``make_lock(ClientLock.ENGINE)``. A thread that holds one
takes only later ones. A lock without a place is a leaf: a thread that holds it takes no other one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

from smq_storage.thread_runtime import RUNTIME

# Names the file to which processes report broken rules; empty where nothing is checked. It has no prefix ``SMQ_``,
# because it is no setting, and processes that take over no settings take it over.
CHECKS_VARIABLE = "SEAWEEDMQ_LOCK_CHECKS"

F = TypeVar("F", bound=Callable[..., Any])

_checks = bool(os.environ.get(CHECKS_VARIABLE))
if _checks:
    from smq_storage.process import lock_checks


def make_lock(place: IntEnum | None = None) -> threading.Lock:
    return lock_checks.checked_lock(place) if _checks else RUNTIME.get().make_lock()


def make_rlock(place: IntEnum | None = None) -> threading.RLock:
    """A lock that its holder may take again."""
    return lock_checks.checked_rlock(place) if _checks else RUNTIME.get().make_rlock()


def requires_lock(name: str) -> Callable[[F], F]:
    """The caller of the function holds this lock (or condition) of its first argument."""
    return lock_checks.holder_check(name) if _checks else _unchanged


def requires_no_lock(function: F) -> F:
    """The caller of the function holds no lock."""
    return lock_checks.no_lock_check(function) if _checks else function


def _unchanged(function: F) -> F:
    return function
