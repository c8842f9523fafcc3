"""Keeps out of a broker's time what it has no use for: late imports, page faults, long garbage collections."""

from __future__ import annotations

import gc

import pyarrow as pa

from smq_storage import glibc
from smq_storage.schemas import TIMESTAMP

MIB = 1024 * 1024


def warm_up() -> None:
    """Does Arrow's lazy imports now: its first conversion of a time looks for pandas (which ``spare`` refuses)."""
    pa.scalar(0, TIMESTAMP)


def keep_freed_memory(limit: int) -> bool:
    """Tells glibc to use memory again rather than give it back. ``limit`` is the memory of this process, in bytes.

    Batches come in buffers of about 1 MB. By default each of them is mapped, touched for the first time, and unmapped:
    that was 40 % of a broker's CPU time. It never gives memory back by itself; ``calm`` says when. False: not a glibc.
    """
    return glibc.set_malloc(
        {
            glibc.MMAP_THRESHOLD: 32 * MIB,
            glibc.TRIM_THRESHOLD: glibc.NEVER,
            glibc.TOP_PAD: min(limit // 4, 2**30),
        }
    )


def rest_collector() -> None:
    """Makes the cyclic collector pass over what lives long. To be called when everything is imported and wired.

    It would visit every object of the process, and every entry of every tail, again and again: 30 to 60 ms each time
    with 10000 entries, in which nothing is acked. Entries are in no cycles.
    """
    gc.collect()
    glibc.give_back()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
