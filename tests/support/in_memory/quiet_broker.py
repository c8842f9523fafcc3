"""A broker's primaries with their flusher in virtual time: what it requests from the filer, and when.

Followers ack everything at once. Time passes only in ``advance``, which polls regularly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import Payload
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.pauses import PauseCounter
from smq_broker.runtime.threads import ThreadSupervisor
from smq_broker.segments import flusher as flushing
from smq_broker.segments.flusher import Flusher
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.model.entities import SECOND, Micros, Replica, Topic
from smq_core.replica.log_entries import BatchId, IncomingBatch
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store, open_store
from support.data.raw_flight import rows
from support.processes.broker import make_segment

POLL: Micros = int(flushing.POLL_SECONDS * SECOND)
REPLICAS = Replica("b1", "me", "x:1"), Replica("b2", "f", "x:2")


class CountingStore:
    """Counts the calls of a store's methods. ``before`` is called with the name of each, and may raise."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        self.calls: Counter[str] = Counter()
        self.before: Callable[[str], None] = lambda name: None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)
        if not callable(method):
            return method

        def call(*args: object, **kwargs: object) -> object:
            self.calls[name] += 1
            self.before(name)
            return method(*args, **kwargs)

        return call


class VirtualClock:
    """In microseconds."""

    def __init__(self) -> None:
        self.time: Micros = 1_000 * SECOND

    def now(self) -> Micros:
        return self.time


class QuietBroker:
    """``taken`` has the segments in which another writer's object was found, each time that it was."""

    def __init__(self, topic: Topic, segments: int = 1, memory: int = 1 << 30) -> None:
        self.topic = topic
        self.store = CountingStore()
        self.clock = VirtualClock()
        self.memory = MemoryAccounting(memory)
        self.metrics = BrokerMetrics(CollectorRegistry())
        self.taken: list[HostedSegment] = []
        self.chunks_due = 0
        """How often a chunk became due before an interval had passed."""
        self.segments = [self._open(number) for number in range(segments)]
        self.flusher = Flusher(
            hosted=lambda: self.segments,
            memory=self.memory,
            broker_metrics=self.metrics,
            threads=ThreadSupervisor(self.metrics),
            on_chunk_taken=self.taken.append,
        )

    def _open(self, number: int) -> HostedSegment:
        segment = make_segment(self.topic, *REPLICAS, number=number)
        hosted = HostedSegment(
            topic=self.topic,
            segment=segment,
            incarnation="me",
            chain=ChunkChain(self.store, self.topic.name, self.topic.uid, segment.name),  # type: ignore[arg-type]
            memory=self.memory,
            clock=self.clock,  # type: ignore[arg-type]
            pauses=PauseCounter(lambda: 0.0),
            on_chunk_due=self._chunk_due,
            on_change=lambda: None,
        )
        with hosted as machine:
            machine.follower_connected("f", 0, 64 << 20)
        return hosted

    def _chunk_due(self, hosted: HostedSegment) -> None:
        self.chunks_due += 1
        self.flusher.enqueue(hosted)

    def append(self, hosted: HostedSegment, nbytes: int = 1000) -> None:
        """Appends and replicates a batch of one row. ``nbytes`` is what it counts for."""
        with hosted as machine:
            assert hosted.memory.reserve(nbytes)
            id_ = BatchId("p", 1, machine.counters.batches, "one")
            machine.append(
                self,
                IncomingBatch(
                    id=id_,
                    rows=1,
                    nbytes=nbytes,
                    partition_min=0,
                    partition_max=0,
                    payload=Payload(ArrowBlock(rows([b"v" * 1000]))),
                ),
                self.clock.now(),
            )
            machine.follower_acked("f", machine.end)
        self.write_due()

    def write_due(self) -> None:
        """Writes what is in the flusher's queue."""
        while any(hosted.flush_schedule.queued for hosted in self.segments):
            self.flusher.flush_next()

    def advance(self, seconds: float, poll: Micros = POLL) -> None:
        """``poll`` is the time between two polls, as in a broker unless a test of a long time needs fewer."""
        until = self.clock.time + int(seconds * SECOND)
        while self.clock.time < until:
            self.clock.time += poll
            self.flusher.poll()
            self.write_due()

    def metric(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(name) or 0.0

    # ---- as a producer's stream

    def acked(self, acks: object) -> None: ...

    def wake(self) -> None: ...

    def fail(self, error: object) -> None: ...
