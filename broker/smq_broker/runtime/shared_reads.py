"""One read of each document is in flight; those who wait share the next one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from smq_storage.process.locks import make_lock

K = TypeVar("K")
V = TypeVar("V")


class SharedReads(Generic[K, V]):
    """Safe from many threads. A caller gets the result or the error of a read that began after its call.

    So nobody gets a document that is older than the call.
    """

    def __init__(self) -> None:
        self._lock = make_lock()
        self._running: dict[K, Future[V]] = {}
        self._next: dict[K, Future[V]] = {}

    def read(self, key: K, function: Callable[[], V]) -> V:
        """``function`` reads the document of that key. Only one of those who wait calls it."""
        with self._lock:
            shared = self._next.get(key)
            if shared is None:
                own: Future[V] = Future()
                running = self._running.get(key)
                (self._running if running is None else self._next)[key] = own
        if shared is not None:
            return shared.result()
        if running is not None:
            wait([running])
            with self._lock:
                del self._next[key]
                self._running[key] = own
        try:
            own.set_result(function())
        except BaseException as error:
            own.set_exception(error)
        finally:
            with self._lock:
                if self._running.get(key) is own:
                    del self._running[key]
        return own.result()
