"""What comes and goes is shown only when it lasts, so that a moment's trouble is not written to the API server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Steady(Generic[T]):
    """Shows an item once it has been seen for ``rise``, and until it has not been seen for ``fall`` (microseconds)."""

    def __init__(self, *, rise: int = 0, fall: int = 0) -> None:
        self._rise, self._fall = rise, fall
        self._seen: dict[T, tuple[int, int]] = {}
        self._shown: dict[T, None] = {}

    def see(self, items: Iterable[T], now: int) -> tuple[T, ...]:
        """These are there now; returns those to show, the longest shown first."""
        items = tuple(items)
        if not (items or self._seen or self._shown):
            return ()
        for item in items:
            self._seen[item] = (self._seen.get(item, (now, now))[0], now)
        for item, (first, last) in list(self._seen.items()):
            if last < now and (now - last >= self._fall or item not in self._shown):
                del self._seen[item]
                self._shown.pop(item, None)
            elif now - first >= self._rise:
                self._shown[item] = None
        return tuple(self._shown)
