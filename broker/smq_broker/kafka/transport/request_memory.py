"""Bounds the memory of large requests over all connections."""

from __future__ import annotations

from collections.abc import Callable, Hashable

# Smaller requests need no reservation, so that readers, groups and metadata go on while producers wait.
SMALL_BYTES = 64 * 1024


class RequestMemory:
    """A request is received only when its whole size is reserved. Belongs to the thread of an event loop.

    Whoever waits gets the next free memory in turn. A request that is larger than the limit is received alone.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._waiting: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        self.reserved_bytes = 0

    @property
    def is_short(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def reserve(self, owner: Hashable, size: int, on_reserved: Callable[[], None]) -> bool:
        """Whether ``size`` is reserved now. Otherwise ``on_reserved`` is called once it is."""
        if not self._waiting and self._fits(size):
            self.reserved_bytes += size
            return True
        self._waiting[owner] = size, on_reserved
        return False

    def cancel(self, owner: Hashable) -> None:
        """The owner waits no longer."""
        if self._waiting.pop(owner, None) is not None:
            self._serve()

    def release(self, size: int) -> None:
        if size:
            self.reserved_bytes -= size
            self._serve()

    def _fits(self, size: int) -> bool:
        return self.reserved_bytes == 0 or self.reserved_bytes + size <= self._limit

    def _serve(self) -> None:
        while self._waiting:
            owner, (size, on_reserved) = next(iter(self._waiting.items()))
            if not self._fits(size):
                return
            del self._waiting[owner]
            self.reserved_bytes += size
            on_reserved()
