"""The process's memory budgets under one lock."""

from __future__ import annotations

from smq_broker.memory.budgets import budgets
from smq_core.errors import Overloaded
from smq_storage.process.locks import make_lock


class MemoryAccounting:
    """Safe from many threads; see docs/threads.md. ``limit`` of the memory and ``journal`` of its disk are in bytes."""

    def __init__(self, limit: int, journal: int = 0) -> None:
        self.limit = limit
        self._lock = make_lock()
        self._primary, self._follower, self._readers = budgets(limit, journal)

    def reserve(self, nbytes: int) -> bool:
        """Reserves capacity for a producer's batch. False if there is none."""
        with self._lock:
            return self._primary.reserve(nbytes)

    def change(self, used: int, in_memory: int) -> None:
        with self._lock:
            self._primary.change(used, in_memory)

    def grant(self, segment: str) -> int:
        """The credit for a followed segment. Raises Overloaded if the budget is used up."""
        with self._lock:
            credit = self._follower.grant(segment)
        if credit is None:
            raise Overloaded(
                f"this broker has no memory left to follow {segment}: add brokers, or give them more memory"
            )
        return credit

    def adjust(self, segment: str, used: int, in_memory: int, acknowledged: int) -> int:
        """The credit of a followed segment from now on, or 0 if it has none. See FollowerBudget."""
        with self._lock:
            return self._follower.adjust(segment, used, in_memory, acknowledged)

    def release(self, segment: str) -> None:
        with self._lock:
            self._follower.release(segment)

    def grant_readers(self, segment: str) -> int:
        """Bytes that may be kept for a segment's readers; 0 if the budget is used up."""
        with self._lock:
            return self._readers.grant(segment)

    def release_readers(self, segment: str) -> None:
        with self._lock:
            self._readers.release(segment)

    @property
    def under_pressure(self) -> bool:
        with self._lock:
            return self._primary.under_pressure

    def primary_usage(self) -> tuple[int, int]:
        """Bytes of primaries' tails, and how many of them may be in memory."""
        with self._lock:
            return self._primary.used, self._primary.limit

    def usage(self) -> dict[str, tuple[int, int]]:
        """By budget: used bytes, and its limit.

        ``producers`` is what primaries' tails have in memory, ``journal`` is all of them if there is a journal, and
        ``replication`` is what primaries of other brokers may send.
        """
        with self._lock:
            primary, follower = self._primary, self._follower
            found = {
                "producers": (primary.in_memory, primary.limit),
                "replication": (follower.granted_bytes, follower.limit),
            }
            if primary.tail_limit > primary.limit:
                found["journal"] = (primary.used, primary.tail_limit)
            return found
