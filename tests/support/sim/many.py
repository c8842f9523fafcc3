"""Many histories on all cores."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from support.sim.history import Failure

COLLECT_AFTER = 100_000, 20, 50
"""A history is one large heap of objects that all live: looking through it often is a fifth of its cost."""


def workers() -> ProcessPoolExecutor:
    """One process for each core."""
    return ProcessPoolExecutor(
        os.cpu_count(), get_context("spawn"), initializer=gc.set_threshold, initargs=COLLECT_AFTER
    )


def failures(pool: ProcessPoolExecutor, run: Callable[[int], Failure | None], seeds: Iterable[int]) -> list[str]:
    """What failed, in words that tell how to see it again."""
    return [str(failure) for failure in pool.map(run, seeds, chunksize=10) if failure]
