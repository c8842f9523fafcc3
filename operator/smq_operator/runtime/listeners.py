"""Listeners of which one that fails affects neither the others nor the caller, and is called again later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

L = TypeVar("L")

INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 30.0


class Listeners(Generic[L]):
    """Called in the order in which they were added, on the event loop, whose exception handler gets every error."""

    def __init__(self) -> None:
        self._listeners: list[L] = []
        self._retrying: set[tuple[int, Hashable]] = set()

    def add(self, listener: L) -> None:
        self._listeners.append(listener)

    def notify(self, about: Hashable, call: Callable[[L], None]) -> None:
        """``call`` calls one listener. It is repeated later if the listener fails, so it reads the state of that time.

        A listener that already waits for its repetition about the same thing is not scheduled twice.
        """
        for index, listener in enumerate(self._listeners):
            self._call((index, about), listener, call, INITIAL_BACKOFF_SECONDS)

    def _call(self, key: tuple[int, Hashable], listener: L, call: Callable[[L], None], backoff: float) -> None:
        try:
            call(listener)
        except Exception as error:
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": f"a listener failed on {key[1]}", "exception": error})
            if key not in self._retrying:
                self._retrying.add(key)
                loop.call_later(backoff, self._repeat, key, listener, call, min(2 * backoff, MAX_BACKOFF_SECONDS))

    def _repeat(self, key: tuple[int, Hashable], listener: L, call: Callable[[L], None], backoff: float) -> None:
        self._retrying.discard(key)
        self._call(key, listener, call, backoff)
