"""Waits for the seal chunks of a segment's predecessors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.registry import SegmentRegistry
from smq_broker.segments.seal_watcher import ChainEnd
from smq_core.errors import SmqError
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Topic, number_of, range_of
from smq_core.model.interval_set import contains
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.catalog import sealed_index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from smq_storage.thread_runtime import monotonic

INITIAL_POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 0.5
FAST_POLL_FOR_SECONDS = 3.0
INDEX_INTERVAL_SECONDS = 3.0


class PredecessorOutcomes(Protocol):
    """Where a waiting segment learns the outcomes of its predecessors. Both may raise SmqError."""

    def read(self, segment: str) -> SealOutcome | None:
        """The outcome, or None while the segment is not sealed."""
        ...

    def read_removed(self, segment: str) -> SealOutcome | None:
        """What is still known if retention has removed the segment, and its seal chunk with it; otherwise None."""
        ...


class StoredOutcomes:
    """Outcomes of one topic's segments, from this process or from the filer."""

    def __init__(self, registry: SegmentRegistry, store: Store, topic: Topic) -> None:
        self._registry = registry
        self._store = store
        self._topic = topic
        self._chain_ends: dict[str, ChainEnd] = {}

    def read(self, segment: str) -> SealOutcome | None:
        hosted = self._registry.find_sealed(self._topic.uid, segment)
        if hosted is not None and hosted.machine.outcome is not None:
            return hosted.machine.outcome
        if segment not in self._chain_ends:
            chain = ChunkChain(self._store, self._topic.name, self._topic.uid, segment)
            self._chain_ends[segment] = ChainEnd(chain)
        info = self._chain_ends[segment].sealed()
        return None if info is None else info.outcome

    def read_removed(self, segment: str) -> SealOutcome | None:
        index = sealed_index.load(self._store, self._topic.name, self._topic.uid)
        if not contains(index.removed, number_of(segment)):
            return None
        partitions = None if index.partitions is None else index.partitions.of(range_of(segment))
        return SealOutcome(segment=segment, end=0, partitions=partitions)


def wait_for_predecessors(hosted: HostedSegment, outcomes: PredecessorOutcomes, on_opened: Callable[[], None]) -> None:
    """Opens a waiting segment when all its predecessors' outcomes are known. Stops if the segment is fenced.

    The filer is polled, and checked at once when a producer connects, because most producers connect after they got the
    seal. A predecessor may be one that expired long ago, if the segments since then ended empty. So the index is read,
    too, every few seconds. Blocks; run it in a thread.
    """
    began = index_read_at = monotonic()
    pause = INITIAL_POLL_SECONDS
    while hosted.machine.state is ReplicaState.WAITING:
        now = monotonic()
        reads_index = now - index_read_at > INDEX_INTERVAL_SECONDS
        if reads_index:
            index_read_at = now
        for name in sorted(hosted.machine.unread_predecessors):
            try:
                outcome = outcomes.read(name) or (outcomes.read_removed(name) if reads_index else None)
            except SmqError as error:
                hosted.log.warning("predecessor.read_failed", predecessor=name, error=error.message)
                pause = MAX_POLL_SECONDS
                continue
            if outcome is not None:
                with hosted as machine:
                    machine.predecessor_sealed(outcome)
        if now - began > FAST_POLL_FOR_SECONDS:
            pause = min(pause * 1.5, MAX_POLL_SECONDS)
        if hosted.machine.state is ReplicaState.WAITING:
            hosted.recheck_predecessors.wait(pause)
            hosted.recheck_predecessors.clear()
    on_opened()
