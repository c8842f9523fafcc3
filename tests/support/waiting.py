"""Waiting for a condition, with a deadline: the only way in which tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(fn: Callable[[], T], timeout: float = 10.0, *, what: str = "", pause: float = 0.01) -> T:
    """The first true result of ``fn``. Exceptions count as "not yet"; the last one is the cause of the failure."""
    deadline = time.monotonic() + timeout
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
            raise AssertionError(f"not within {timeout} s: {what or fn}") from failure
        time.sleep(pause)
