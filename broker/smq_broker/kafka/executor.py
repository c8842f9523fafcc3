"""Between the listener's event loop and the threads of the broker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# Reads of the filer, and work on large batches.
THREADS = 4


class Blocking:
    """Runs what blocks, or takes long, in a few threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "kafka-blocking")

    async def call(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)


class LoopCalls:
    """Calls of other threads that run in the loop. Many that come together wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def post(self, call: Callable[[], None]) -> None:
        """Safe from all threads; takes no lock. Nothing happens after the loop has ended."""
        self._calls.append(call)
        if not self._is_scheduled:
            self._is_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._run)
            except RuntimeError:
                self._calls.clear()

    def _run(self) -> None:
        # First, so that a call that is posted from now on schedules another run, if this one does not find it.
        self._is_scheduled = False
        while self._calls:
            self._calls.popleft()()
