"""Work that runs beside the reconcile loop, for as long as this process leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class TaskRunner:
    """Starts tasks, logs those that fail, and ends all of them together. Use it on the event loop."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        """Whether no task runs."""
        return not self._running

    def spawn(self, work: Coroutine[Any, Any, None], then: Callable[[], None] | None = None) -> asyncio.Task[None]:
        """Starts ``work``; ``then`` is called when it has ended, whether it failed or not."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(partial(self._done, then))
        return task

    async def stop(self) -> None:
        """Cancels every task and waits until it has ended."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _done(self, then: Callable[[], None] | None, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task.failed", exc_info=error)
        if then is not None:
            then()
