"""Opens segments on request of the leader: registers them, links the followers, and waits for the predecessors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from smq_broker.file_lists.recorded_files import FileLimit
from smq_broker.journal.folder import JournalFolder
from smq_broker.journal.segment_journal import SegmentJournal
from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.runtime.clock import Clock
from smq_broker.runtime.pauses import PauseCounter
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.segments.flusher import Flusher
from smq_broker.segments.hosted_segment import DEFAULT_MAX_UPLOAD_AGE, HostedSegment, ReplicationLink
from smq_broker.segments.journaling import create_journal
from smq_broker.segments.predecessors import StoredOutcomes, wait_for_predecessors
from smq_broker.segments.registry import SegmentRegistry
from smq_broker.segments.sealing import SegmentSealer
from smq_core.errors import InvalidRequest
from smq_core.model.entities import Durability, Micros, Replica, Segment, Topic, TopicSchema
from smq_core.replica.log_entries import ProducerLimits
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import segment_to_pb, topic_to_pb
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store

# Makes the link from a segment to one follower. The last two arguments are called when the follower is fenced, and
# when a thread of the link has died for good.


class ConnectFollower(Protocol):
    """Makes a primary's link to one follower. ``on_fenced`` and ``on_death`` are as those of ``ReplicaSession``."""

    def __call__(
        self,
        hosted: HostedSegment,
        *,
        follower: Replica,
        on_fenced: Callable[[HostedSegment], None],
        on_death: Callable[[], None],
    ) -> ReplicationLink: ...


class SegmentOpener:
    """``on_change`` is called when the leader should get a report soon."""

    def __init__(
        self,
        *,
        registry: SegmentRegistry,
        store: Store,
        memory: MemoryAccounting,
        clock: Clock,
        pauses: PauseCounter,
        flusher: Flusher,
        sealer: SegmentSealer,
        connect_follower: ConnectFollower,
        threads: ThreadSupervisor,
        producer_limits: ProducerLimits,
        on_change: Callable[[], None],
        journal: JournalFolder | None = None,
    ) -> None:
        self._registry = registry
        self._store = store
        self._memory = memory
        self._clock = clock
        self._pauses = pauses
        self._flusher = flusher
        self._sealer = sealer
        self._connect_follower = connect_follower
        self._threads = threads
        self._producer_limits = producer_limits
        self._on_change = on_change
        self._journal = journal
        self._file_limit = FileLimit()

    def open(self, topic: Topic, segment: Segment, max_upload_age: Micros = 0) -> HostedSegment:
        """Hosts the segment from now on, or leaves everything as it was. Repeating the call is harmless.

        ``topic.spec.schema`` has the columns of the segment's schema version, the only ones that the segment accepts.
        References to uploads older than ``max_upload_age`` are rejected; 0 if the leader does not say.

        Raises InvalidRequest (the segment has no replica at this incarnation, or is open with another key), NotHosted
        (for good: it was hosted or refused before), Overloaded, Unavailable (this broker drains, or starts no threads).
        """
        incarnation = self._registry.incarnation
        if all(r.incarnation != incarnation for r in segment.replicas):
            raise InvalidRequest(f"{segment.name} has no replica at this incarnation {incarnation}")
        if (segment.durability is Durability.STORED) != (len(segment.replicas) == 1):
            raise InvalidRequest(
                f"{segment.name} is {segment.durability.value} with {len(segment.replicas)} replicas: "
                "Stored has one, Replicated has two or more"
            )
        hosted, is_new = self._registry.add(topic.uid, segment.name, lambda: self._create(topic, segment))
        if is_new:
            hosted.max_upload_age = max_upload_age or DEFAULT_MAX_UPLOAD_AGE
            create_journal(hosted)
            hosted.log.info(
                "segment.opened",
                primary=hosted.is_primary,
                state=hosted.machine.state.value,
                credit=hosted.memory.credit,
            )
            self._on_change()
        elif hosted.topic.spec.key != topic.spec.key:
            # A topic's key never changes. Settings of the flush do, for the segments that are opened afterwards.
            raise InvalidRequest(
                f"{segment.name} is open with the key column {hosted.topic.spec.key}, not {topic.spec.key}: if this "
                "request came from the leader, drain this broker, so that a new segment has the key that is stored"
            )
        return hosted

    def _create(self, topic: Topic, segment: Segment) -> HostedSegment:
        """The segment with its threads. Nobody finds it before they run, so that a failure leaves no trace of it."""
        hosted = HostedSegment(
            topic=topic,
            segment=segment,
            incarnation=self._registry.incarnation,
            chain=ChunkChain(self._store, topic.name, topic.uid, segment.name),
            memory=self._memory,
            clock=self._clock,
            pauses=self._pauses,
            producer_limits=self._producer_limits,
            journal=self._segment_journal(topic, segment),
            file_limit=self._file_limit,
            on_chunk_due=self._flusher.enqueue,
            on_change=self._on_change,
        )
        try:
            if hosted.is_primary:
                self._start_primary(hosted)
        except BaseException:
            hosted.discard()
            raise
        return hosted

    def _segment_journal(self, topic: Topic, segment: Segment) -> SegmentJournal | None:
        """Only ``Replicated`` segments have one: the filer has all acked messages of the others."""
        if self._journal is None or segment.durability is Durability.STORED:
            return None
        incarnation = self._registry.incarnation
        schema = TopicSchema(segment.schema_version, topic.spec.schema)
        return self._journal.segment(
            pb.OpenSegment(topic=topic_to_pb(topic, schema), segment=segment_to_pb(segment), incarnation=incarnation)
        )

    def _start_primary(self, hosted: HostedSegment) -> None:
        # Without its links and threads the segment acks nothing. If it is fenced, the leader seals it.
        fence = partial(self._sealer.fence, hosted)
        followers = hosted.segment.replicas[1:]
        hosted.links = [
            self._connect_follower(hosted, follower=it, on_fenced=self._sealer.follow_seal, on_death=fence)
            for it in followers
        ]
        try:
            for link in hosted.links:
                link.start()
            if hosted.machine.state is ReplicaState.WAITING:
                outcomes = StoredOutcomes(self._registry, self._store, hosted.topic)
                wait = partial(wait_for_predecessors, hosted, outcomes, self._on_change)
                self._threads.start(Task(kind="open", run=wait, subject=hosted.name, on_death=fence))
        except BaseException:
            with hosted as machine:
                machine.fence()  # which ends the links that have started
            raise
