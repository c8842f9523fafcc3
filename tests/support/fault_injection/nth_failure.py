"""Fails the n-th call of one name, once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

READS = ("get", "get_range", "get_tail", "head", "list", "folders")


class NthFailure:
    """``failed``: the call was made, and raised. Calls of other names pass."""

    def __init__(self, name: str, n: int, error: Callable[[], Exception]) -> None:
        self._name = name
        self._n = n
        self._error = error
        self._lock = threading.Lock()
        self._calls = 0
        self.failed = False

    def wrap(self, name: str, call: Callable[P, T]) -> Callable[P, T]:
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
            self.count(name)
            return call(*args, **kwargs)

        return wrapped

    def count(self, name: str) -> None:
        with self._lock:
            if name != self._name:
                return
            self._calls += 1
            if self._calls != self._n:
                return
            self.failed = True
        raise self._error()


class UnreadableStore:
    """A store whose reads go through an NthFailure."""

    def __init__(self, store: Any, failure: NthFailure) -> None:
        self._store = store
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return self._failure.wrap(name, method) if name in READS else method
