"""The leader's clock: microseconds since the Unix epoch that never jump.

It is the wall time at the start of the process plus the monotonic time since. Intervals are right even if the machine's
clock is set, and the values are still dates.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
"""Returns microseconds since the Unix epoch."""

_BEGAN_WALL = time.time_ns()
_BEGAN = time.monotonic_ns()


def now() -> int:
    """Microseconds since the Unix epoch; never goes back."""
    return (_BEGAN_WALL + time.monotonic_ns() - _BEGAN) // 1000
