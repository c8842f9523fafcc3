"""An asyncio event loop in virtual time. Coroutines run as a simulated process, and pause or end with it.

A blocking call (``run_in_executor``) runs in a virtual thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any
from weakref import WeakSet

from smq_core.errors import SmqError
from support.sim.engine.virtual_threads import VirtualThread
from support.sim.engine.world import SECOND, Future, Process


class VirtualLoop(asyncio.AbstractEventLoop):
    """What asyncio's tasks, futures, events and timeouts use of a loop. ``failures`` are uncaught exceptions."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.failures: list[BaseException | str] = []
        self._ready: deque[asyncio.Handle] = deque()
        self._planned = False
        self._coroutines: WeakSet[Any] = WeakSet()

    def time(self) -> float:
        return self.process.world.now / SECOND

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._soon(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        delay = max(0, round(when * SECOND) - self.process.world.now)
        self.process.after(delay, lambda: self._soon(handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """The loop skips it at its time."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._coroutines.add(coro)
        return asyncio.Task(coro, loop=self, **options)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()

        def ended(result: Any, error: Exception | None) -> None:
            if done.cancelled():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        VirtualThread(self.process, partial(func, *args), "executor", ended)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context.get("exception") or str(context.get("message")))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def answer_of(self, future: Future) -> asyncio.Future[Any]:
        """Awaits a simulated answer."""
        found = self.create_future()

        def arrived(answer: Future) -> None:
            if found.done():
                return
            if answer.error is not None:
                found.set_exception(answer.error)
            else:
                found.set_result(answer.value)

        future.then(lambda answer: self.process.after(0, lambda: arrived(answer)))
        return found

    def start(self, coro: Any) -> Future:
        """Runs a coroutine. Returns a simulated future of its result or its SmqError."""
        found = Future()
        self._coroutines.add(coro)

        async def run() -> None:
            try:
                found.set(await coro)
            except SmqError as error:
                found.fail(error)

        self.create_task(run())
        return found

    def abandon(self) -> None:
        """Ends the world's threads, and drops coroutines that have not begun."""
        self.process.world.close()
        for coro in list(self._coroutines):
            if inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
                coro.close()

    # ---- inside

    def _soon(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)
        if not self._planned:
            self._planned = True
            self.process.after(0, self._run_ready)

    def _run_ready(self) -> None:
        self._planned = False
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(before)
