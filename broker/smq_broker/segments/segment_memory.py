"""What one segment takes of the memory of its process: for producers' batches, for a followed tail, for readers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.rows.batches import ENTRY_OVERHEAD_BYTES
from smq_broker.segments.flush_scheduling import FlushSchedule
from smq_core.replica.log_entries import Entry
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_storage.process.locks import requires_lock
from smq_storage.thread_runtime import monotonic

# A producer that waits for memory tries again much sooner.
PRODUCER_RETRIES_WITHIN_SECONDS = 2.0


class SegmentMemory:
    """``lock`` is the segment's. ``key`` names the segment in the budgets.

    ``credit`` is a follower's. It is granted at once, which raises Overloaded if there is no memory left.
    """

    def __init__(
        self,
        process: MemoryAccounting,
        *,
        key: str,
        machine: SegmentReplica,
        flush_schedule: FlushSchedule,
        lock: threading.Lock,
    ) -> None:
        self.refused_since: float | None = None
        """Since when producers wait for memory."""
        self.credit = 0 if machine.config.is_primary else process.grant(key)
        self.lock = lock
        self._process = process
        self._key = key
        self._machine = machine
        self._flush_schedule = flush_schedule
        self._reserved = 0
        self._reserved_in_memory = 0
        self._mapped: deque[tuple[int, int]] = deque()
        """Of each entry of the tail whose rows are in the journal's files: its end, and their bytes."""
        self._mapped_bytes = 0
        self._refused_last = 0.0
        self._readers = 0

    def release(self) -> None:
        """Gives back everything but a primary's tail, whose memory ``tail_changed`` counts."""
        self._process.release(self._key)
        self._process.release_readers(self._key)

    @requires_lock("lock")
    def reserve(self, nbytes: int) -> bool:
        """Reserves capacity for one more batch of a producer. False if there is none.

        An empty tail always accepts a batch.
        """
        machine = self._machine
        if machine.tail_bytes and machine.available_bytes() < nbytes:
            # The tail may be too small to be flushed soon without a request.
            self._flush_schedule.request_early()
            self._refused()
            return False
        if not self._process.reserve(nbytes):
            self._refused()
            return False
        self.refused_since = None
        self._reserved += nbytes
        self._reserved_in_memory += nbytes
        return True

    @requires_lock("lock")
    def _refused(self) -> None:
        now = monotonic()
        if self.refused_since is None or now - self._refused_last >= PRODUCER_RETRIES_WITHIN_SECONDS:
            self.refused_since = now
        self._refused_last = now

    @requires_lock("lock")
    def waiting_seconds(self) -> float:
        """For how long producers wait. One that waits tries again and again; one that gave up waits no more."""
        now = monotonic()
        if self.refused_since is None or now - self._refused_last >= PRODUCER_RETRIES_WITHIN_SECONDS:
            return 0.0
        return now - self.refused_since

    @requires_lock("lock")
    def tail_changed(self) -> None:
        """Counts what the primary's tail has now in place of what was reserved for it."""
        used, in_memory = self._machine.tail_bytes, self._in_memory()
        if used != self._reserved or in_memory != self._reserved_in_memory:
            self._process.change(used - self._reserved, in_memory - self._reserved_in_memory)
            self._reserved, self._reserved_in_memory = used, in_memory

    @requires_lock("lock")
    def rows_mapped(self, entries: Iterable[Entry]) -> None:
        """The rows of these entries are in the journal's files now, and in no other memory."""
        for entry in entries:
            if entry.batch.reference is None:
                nbytes = entry.batch.nbytes - ENTRY_OVERHEAD_BYTES
                self._mapped.append((entry.end, nbytes))
                self._mapped_bytes += nbytes

    @requires_lock("lock")
    def _in_memory(self) -> int:
        """The bytes of the tail that are not in the journal's files."""
        mapped, chain_end = self._mapped, self._machine.chain_end
        while mapped and mapped[0][0] <= chain_end:
            self._mapped_bytes -= mapped.popleft()[1]
        return max(0, self._machine.tail_bytes - self._mapped_bytes)

    @requires_lock("lock")
    def adjust_credit(self, acknowledged: int) -> int:
        """A follower's credit to announce to its primary, which keeps within ``acknowledged``."""
        used, in_memory = self._machine.tail_bytes, self._in_memory()
        self.credit = self._process.adjust(self._key, used, in_memory, acknowledged) or self.credit
        return self.credit

    def reader_opened(self) -> None:
        """While there are readers, some entries stay in memory after they were written to the filer."""
        with self.lock:
            self._readers += 1
            if self._machine.state is not ReplicaState.SEALED:
                self._machine.keep_recent_bytes(self._process.grant_readers(self._key))

    def reader_closed(self) -> None:
        with self.lock:
            self._readers -= 1
            if not self._readers:
                self._machine.keep_recent_bytes(0)
                self._process.release_readers(self._key)
