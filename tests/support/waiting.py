"""Waiting for a condition: the only way in which tests wait.

No test fails because the machine is slow: every wait ends after the same long time, which only a hang reaches. How
quickly something happens is tested in virtual time.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


# Seconds after which a wait is given up. It is short only where tests must fail, which is in `make mutations`.
HANG_GUARD = float(os.environ.get("SMQ_TEST_HANG_GUARD", 300))


LONGEST_PAUSE = 0.1
GROWTH = 1.2


def eventually(fn: Callable[[], T], what: str = "", *, pause: float = 0.01) -> T:
    """The first true result of ``fn``. Exceptions count as "not yet"; the last one is the cause of the failure.

    The pauses grow, because checks that start a command or send a request would otherwise take the cores from the
    processes that they wait for.
    """
    deadline = time.monotonic() + HANG_GUARD
    failure: Exception | None = None
    while True:
        try:
            result = fn()
            failure = None
            if result:
                return result
        except Exception as error:
            failure = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {HANG_GUARD:.0f} s: {what or fn}") from failure
        time.sleep(pause)
        pause = max(pause, min(pause * GROWTH, LONGEST_PAUSE))


async def wait_until(condition: Callable[[], Any], what: str = "", *, pause: float = 0.01) -> Any:
    """The first true result of ``condition``, which may be a coroutine function. Works in virtual time too."""
    result: Any = None
    try:
        async with asyncio.timeout(HANG_GUARD):
            while True:
                result = condition()
                if isinstance(result, Awaitable):
                    result = await result
                if result:
                    return result
                await asyncio.sleep(pause)
    except TimeoutError:
        raise AssertionError(f"not within {HANG_GUARD:.0f} s: {what or condition}; last: {result}") from None
