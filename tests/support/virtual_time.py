"""Tests in virtual time: waiting takes no time, and no deadline is missed because the machine is busy.

``virtual_time`` runs an async test on the simulation's event loop. Only timers move its clock, which stands still while
code runs, so a deadline of ten seconds is missed only if ten seconds of timers pass before it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from smq_operator.runtime import clock
from support.sim.engine.virtual_asyncio import VirtualLoop
from support.sim.engine.world import SECOND, Process, World

P = ParamSpec("P")
T = TypeVar("T")

LONGEST_TEST = 600 * SECOND
# What ``now`` says when a test begins.
EPOCH = 1_700_000_000 * SECOND

_running: list[VirtualLoop] = []


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Makes an async test a function that pytest calls, and that runs it in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_in_virtual_time(test(*args, **kwargs))

    return run


def run_in_virtual_time(coro: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns. Raises what it raises, or what a callback or a forgotten task raised."""
    world = World(0)
    loop = VirtualLoop(Process(world, "test", "test"))
    _running.append(loop)
    try:
        task = loop.create_task(coro)
        while not task.done():
            assert world.now < LONGEST_TEST, f"not over after {LONGEST_TEST // SECOND} virtual seconds"
            world.run_until(world.now + SECOND // 1000)
        result: T = task.result()
        return result
    finally:
        loop.abandon()
        _running.pop()


def now() -> int:
    """The test's clock: virtual if it runs in virtual time."""
    return EPOCH + _running[-1].process.world.now if _running else clock.now()


async def pause_process(seconds: float) -> None:
    """Pauses all that runs in the test's loop, as SIGSTOP does. What the caller does next runs first after it."""
    process = _running[-1].process
    process.pause()
    process.world.after(int(seconds * SECOND), process.resume)
    await asyncio.sleep(0.001)
