"""A cache of what was read, bounded by bytes. Threads that want the same at once read it once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from smq_storage.process.locks import make_lock

V = TypeVar("V")


class ByteCache(Generic[V]):
    """Keeps values of about ``max_bytes`` together, and the last one however large it is. Safe from many threads."""

    def __init__(self, max_bytes: int, size_of: Callable[[V], int]) -> None:
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._lock = make_lock()
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        """The least recently used one first."""
        self._loading: dict[Hashable, Future[V]] = {}
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """The size of what it keeps."""
        return self._bytes

    def get(self, key: Hashable) -> V | None:
        """The value if it is there."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def get_or_load(self, key: Hashable, load: Callable[[], V]) -> V:
        """The value, from ``load`` if it is not there. What that raises is raised, and nothing is kept then."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            running = self._loading.get(key)
            if running is None:
                mine = self._loading[key] = Future[V]()
        if running is not None:
            return running.result()
        try:
            value = load()
        except BaseException as error:
            self._end_loading(key)
            mine.set_exception(error)
            raise
        self._keep(key, value)
        mine.set_result(value)
        return value

    def _end_loading(self, key: Hashable) -> None:
        with self._lock:
            del self._loading[key]

    def _keep(self, key: Hashable, value: V) -> None:
        size = self._size_of(value)
        with self._lock:
            del self._loading[key]
            self._values[key] = value
            self._bytes += size
            while self._bytes > self._max_bytes and len(self._values) > 1:
                _, evicted = self._values.popitem(last=False)
                self._bytes -= self._size_of(evicted)
