"""Readers with pins, whose ids are counted and whose clock a test sets."""

from __future__ import annotations

from itertools import count

from smq_core.model.entities import SECOND
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store
from smq_storage.tables.pinned_reads import PinnedReads

LIFETIME = 600 * SECOND


class Readers:
    """``now`` is the monotonic clock of the reader's process, in microseconds."""

    def __init__(self, store: Store, name: str = "pin") -> None:
        numbers = count()
        self.now = 0
        self.reads = PinnedReads(store, lambda: f"{name}-{next(numbers)}", lambda: self.now, RetryPolicy(2.0))
