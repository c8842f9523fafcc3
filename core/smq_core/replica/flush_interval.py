"""How long messages may wait for their chunk. A segment with little traffic waits longer, and writes fewer chunks.

A chunk costs the same request whatever is in it. So the interval stretches until the chunk is worth its request, and
no further than the topic allows.
"""

from __future__ import annotations

from smq_core.model.entities import Micros

# A tail of this size does not wait longer than ``interval``. It limits what a stretched interval keeps in memory.
WORTHWHILE_BYTES = 1024 * 1024


def flush_interval(tail_bytes: int, interval: Micros, max_interval: Micros | None) -> Micros:
    """The age of the oldest message at which a tail of this size is written.

    At a steady rate the time between two chunks is that in which ``WORTHWHILE_BYTES`` arrive, from ``interval`` to
    ``max_interval``. None, or less than ``interval``, stretches nothing.
    """
    if max_interval is None or tail_bytes >= WORTHWHILE_BYTES:
        return interval
    return max(interval, max_interval)
