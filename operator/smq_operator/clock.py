"""The leader's clock: microseconds since the Unix epoch that never jump.

Wall time at the start of the process plus what a monotonic clock counted since: intervals are right whatever happens to
the machine's clock, and the values still mean something to people.
"""

from __future__ import annotations

import time

_BEGAN_WALL = time.time_ns()
_BEGAN = time.monotonic_ns()


def now() -> int:
    """Microseconds since the Unix epoch; never goes back."""
    return (_BEGAN_WALL + time.monotonic_ns() - _BEGAN) // 1000
