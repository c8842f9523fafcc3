"""One segment that this process hosts: its replica state machine under a lock, and conditions to wait for changes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import ParamSpec, Protocol

import structlog

from smq_broker.file_lists.recorded_files import FileLimit, RecordedFiles
from smq_broker.journal.segment_journal import SegmentJournal
from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.rows.batches import ENTRY_OVERHEAD_BYTES, WireSchemas
from smq_broker.rows.payloads import Compactor
from smq_broker.rows.range_histogram import RangeHistogram
from smq_broker.runtime.clock import Clock
from smq_broker.runtime.lock_order import BrokerLock
from smq_broker.runtime.pauses import PauseCounter
from smq_broker.segments.filer_failure import FilerFailure
from smq_broker.segments.flush_scheduling import FlushSchedule
from smq_broker.segments.segment_memory import SegmentMemory
from smq_core.errors import SmqError, Unavailable, UnknownTopic
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import SECOND, Durability, Micros, Segment, Topic
from smq_core.model.loss import Loss, loss_beyond
from smq_core.replica.log_entries import Ack, Entry, ProducerLimits, ReplicaConfig
from smq_core.replica.recent_entries import entries_from
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_core.sealing.chain_sealer import StoreReply, StoreRequest, UnsealedTail, seal
from smq_storage.chunks.chain import ChunkChain
from smq_storage.process.locks import make_lock, requires_lock
from smq_storage.thread_runtime import make_condition, make_event

P = ParamSpec("P")

DEFAULT_PRODUCER_LIMITS = ProducerLimits()
# Half of the time after which leaders that do not send it delete uploads that no chunk refers to.
DEFAULT_MAX_UPLOAD_AGE: Micros = 30 * 60 * SECOND
# How often a waiting stream checks whether its client is still connected.
CLIENT_CHECK_SECONDS = 0.25


class AckSink(Protocol):
    """A producer's stream, as the segment sees it. All calls are made under the segment's lock and must be short."""

    def acked(self, acks: list[Ack]) -> None: ...

    def wake(self) -> None: ...

    def fail(self, error: SmqError) -> None:
        """Ends the stream with this error, because acks of it were lost on their way. The producer connects again."""


class ReplicationLink(Protocol):
    """A primary's link to one follower, as the segment and its registry see it."""

    @property
    def incarnation(self) -> str: ...

    def start(self) -> None:
        """Replicates from now on, until the segment is fenced. Raises Unavailable."""

    def unresponsive(self) -> bool: ...

    def notify(self, *, grown: bool, progressed: bool, sends_now: bool) -> None:
        """There are new entries (``grown``), or a new watermark, chain end or state (``progressed``).

        With ``sends_now`` the caller will call ``send_now``, so no thread has to wake for the entries. Lock held.
        """

    def can_send_now(self) -> bool:
        """Whether a small message can be sent without blocking. The caller holds the segment's lock."""

    def send_now(self) -> None:
        """Sends what waits, in this thread. Only if the link has just said that it can."""


class HostedSegment:
    """``with hosted as machine:`` locks the segment; leaving the block publishes what has changed.

    Both conditions use this one lock: ``changed`` (state or watermark), ``capacity_freed`` (the tail has shrunk). See
    docs/threads.md.

    A follower's memory is granted when it is constructed, which raises Overloaded if there is none left.
    """

    def __init__(
        self,
        *,
        topic: Topic,
        segment: Segment,
        incarnation: str,
        chain: ChunkChain,
        memory: MemoryAccounting,
        clock: Clock,
        pauses: PauseCounter,
        producer_limits: ProducerLimits = DEFAULT_PRODUCER_LIMITS,
        journal: SegmentJournal | None = None,
        file_limit: FileLimit | None = None,
        on_chunk_due: Callable[[HostedSegment], None],
        on_change: Callable[[], None],
    ) -> None:
        self.topic = topic
        self.segment = segment
        self.incarnation = incarnation
        self.chain = chain
        self.clock = clock
        self.wire = WireSchemas.of(topic)
        self.files = RecordedFiles(segment.name, self.wire.key, file_limit or FileLimit())
        self.max_upload_age = DEFAULT_MAX_UPLOAD_AGE
        """In microseconds. A primary rejects references to older uploads."""
        self.compactor = Compactor()
        self.histogram = RangeHistogram(segment.range)
        self.log = structlog.get_logger(__name__).bind(segment=segment.name, topic=topic.name)
        self.machine = self._new_replica(
            ReplicaConfig(
                segment=segment.name,
                range=segment.range,
                incarnation=incarnation,
                replicas=tuple(r.incarnation for r in segment.replicas),
                durability=segment.durability,
                predecessors=segment.predecessors,
                flush_bytes=topic.spec.flush_bytes,
                flush_interval=topic.spec.flush_interval,
                flush_max_interval=topic.spec.flush_max_interval,
                producer_limits=producer_limits,
                journal=journal is not None,
                counts_partitions=topic.spec.has_kafka_offsets,
            )
        )
        self.journal = journal
        self.filer_failure = FilerFailure()
        self.journal_problem: str | None = None
        """Why the segment continues without its journal."""
        self.is_primary = self.machine.config.is_primary
        self.stored = segment.durability is Durability.STORED
        self.lock = make_lock(BrokerLock.SEGMENT)
        self.changed = make_condition(self.lock)
        self.capacity_freed = make_condition(self.lock)
        self.fenced = make_event()
        self.recheck_predecessors = make_event()
        """Set to check at once whether the predecessors are sealed, because a producer acts as if they were."""
        self.streams: set[AckSink] = set()
        self.watchers: set[Callable[[], None]] = set()
        """Called under the lock when there is more to read, or after a change of state. They must be short."""
        self.links: list[ReplicationLink] = []
        self.successors: tuple[Segment, ...] = ()
        self.deleted = False
        """The topic is deleted. Producers get this as an error, because a deleted topic has no successor segments."""
        self.flush_schedule = FlushSchedule(self.machine, self.stored)
        self.memory = SegmentMemory(
            memory, key=self.key, machine=self.machine, flush_schedule=self.flush_schedule, lock=self.lock
        )
        self._pauses = pauses
        self._pauses_checked = pauses.read()
        self._primary_streams = 0
        self._had_primary_stream = False
        self._on_chunk_due = on_chunk_due
        self._on_change = on_change
        self._sends_now = False
        self._last_seen = (self.machine.state, 0, 0, 0, 0)

    @property
    def name(self) -> str:
        return self.segment.name

    @property
    def key(self) -> str:
        """Unique among all topics, also deleted ones: a recreated topic numbers its segments from the start again."""
        return segment_key(self.topic.uid, self.segment.name)

    @property
    def lost(self) -> Loss | None:
        """What the sealed segment has lost: as its seal chunk says, and all that was acked here beyond its end."""
        outcome = self.machine.outcome
        return loss_beyond(outcome.end, outcome.lost, self.machine.watermark) if outcome is not None else None

    @property
    def acked_beyond_end(self) -> bool:
        """The segment was sealed without this replica, below its watermark. Only this replica knows how far."""
        outcome = self.machine.outcome
        return outcome is not None and self.machine.watermark > outcome.end

    def topic_deleted_error(self) -> UnknownTopic:
        """The error that producers get once ``deleted`` is set."""
        name = self.topic.name
        return UnknownTopic(
            f"topic {name} was deleted: messages that were not acked before are lost. Stop this producer, or create "
            "the topic again (`smq apply` or `kubectl apply`) and open a new producer",
            topic=name,
        )

    def unwritten_upload_age(self) -> Micros:
        """No message that waits for its chunk, and no later one, names an upload that is older than this.

        The leader collects uploads that no chunk names, and a message may wait for its chunk longer than an upload's
        grace. Call it before ``chain_end`` is read.
        """
        self.clock.follow()  # after a suspension of the machine, the tail is as old as it is for others
        now = self.clock.now()
        with self.lock:
            tail = self.machine.tail
            waits = max(0, now - tail[0].appended) if tail else 0
        return waits + 2 * self.max_upload_age

    @property
    def upload_check_valid_seconds(self) -> float:
        """A batch that waits longer for capacity is checked again, because its uploads have become older.

        It is half of what ``unwritten_upload_age`` allows for it. The other half is for slow checks and late reports.
        """
        return self.max_upload_age / 2 / SECOND

    @property
    def bytes_in(self) -> int:
        """Bytes of all batches that were received here, as Arrow holds them."""
        counters = self.machine.counters
        return counters.bytes - counters.batches * ENTRY_OVERHEAD_BYTES

    def __enter__(self) -> SegmentReplica:
        self.lock.acquire()
        return self.machine

    def __exit__(self, *_: object) -> None:
        try:
            self._publish_changes()
        finally:
            self.lock.release()

    def journal_written(self, end: int, mapped: Sequence[Entry] = ()) -> None:
        """The journal has all entries below ``end``. Mostly that changes nothing until the other replicas have them.

        The rows of the entries ``mapped`` are in its files only.
        """
        machine = self.machine
        with self.lock:
            if mapped:
                self.memory.rows_mapped(mapped)
                if self.memory.refused_since is not None:
                    self.memory.tail_changed()
                    self.capacity_freed.notify_all()
            before = machine.watermark
            machine.journal_written(end)
            if machine.watermark != before:
                self._publish_changes()

    def begin_seal(self) -> Generator[StoreRequest, StoreReply, SealOutcome]:
        """The steps that seal this fenced segment with its tail."""
        with self.lock:
            return seal(self.name, UnsealedTail.of(self.machine))

    def chain_hint(self) -> int | None:
        """The name of a chunk near the chain's end, or where the next one will be; None if that is not known."""
        return self.machine.chain_end

    def _new_replica(self, config: ReplicaConfig) -> SegmentReplica:
        return SegmentReplica(config)

    def discard(self) -> None:
        """Gives back what the constructor took, because the segment could not be opened."""
        self.memory.release()
        self.files.abandon()

    def stalled_seconds(self) -> float:
        """For how long the oldest unacked message waits, or producers wait for memory, whichever is longer."""
        with self.lock:
            machine = self.machine
            if machine.state is not ReplicaState.OPEN:
                return 0.0
            refused = self.memory.waiting_seconds()
            unacked = next(entries_from(machine.tail, machine.watermark), None)
            appended = unacked.appended if unacked is not None else None
        return max(refused, (self.clock.now() - appended) / SECOND if appended is not None else 0.0)

    @requires_lock("lock")
    def links_to_send_now(self) -> list[ReplicationLink]:
        """The links on which the caller sends what it appends, after it has released the lock.

        This saves the links' threads from waking up for each small message. Empty if a link cannot: then they send.
        """
        self._sends_now = bool(self.links) and all(link.can_send_now() for link in self.links)
        return list(self.links) if self._sends_now else []

    @requires_lock("lock")
    def primary_stream_opened(self) -> None:
        """At a follower."""
        self._primary_streams += 1

    @requires_lock("lock")
    def primary_stream_closed(self) -> None:
        """At a follower."""
        self._primary_streams -= 1
        self._had_primary_stream = True

    @property
    def primary_lost(self) -> bool:
        """At a follower: the primary was connected, and is no more."""
        return self._had_primary_stream and not self._primary_streams

    @property
    def awaits_seal_check(self) -> bool:
        """At a primary whose process was paused: the segment may have been sealed meanwhile, without its replicas.

        Nothing is acked until ``confirm_unsealed``, because nobody would find what is acked now. ``Stored`` segments
        need no check, since their acks wait for the chunk chain.
        """
        return (
            self.is_primary
            and not self.stored
            and self._pauses.read() != self._pauses_checked
            and self.machine.state is ReplicaState.OPEN
        )

    def confirm_unsealed(self, pauses: int) -> None:
        """The chain had no seal chunk after that many pauses, so acks may go on."""
        with self:
            self._pauses_checked = pauses

    @requires_lock("lock")
    def _publish_changes(self) -> None:
        machine = self.machine
        if self.is_primary:
            if machine.has_due_acks() and not self.awaits_seal_check:
                self._deliver_acks(machine.take_acks())
            self.memory.tail_changed()
        now = (machine.state, machine.end, machine.watermark, machine.chain_end, machine.tail_bytes)
        before = self._last_seen
        if now != before:
            self._last_seen = now
            grown = now[1] != before[1]
            progressed = now[2:4] != before[2:4] or now[0] is not before[0]
            for link in self.links:
                link.notify(grown=grown, progressed=progressed, sends_now=self._sends_now)
            self._sends_now = False
            if now[4] < before[4] or now[0] is not before[0]:
                self.capacity_freed.notify_all()
            if now[0] is not before[0]:
                self._state_changed()
            if now[2] != before[2] or now[0] is not before[0]:
                self.changed.notify_all()
                for watcher in self.watchers:
                    self._call(watcher)
        if self.is_primary and not self.flush_schedule.queued and self.flush_schedule.chunk_due():
            self.flush_schedule.queued = True
            if not self._call(self._on_chunk_due, self):
                self.flush_schedule.queued = False  # the flusher's next poll queues it

    @requires_lock("lock")
    def _deliver_acks(self, acks: list[Ack]) -> None:
        if not acks:
            return
        first: AckSink = acks[0].stream  # type: ignore[assignment]
        if all(ack.stream is first for ack in acks):
            self._deliver_to(first, acks)
            return
        by_stream: dict[int, list[Ack]] = {}
        for ack in acks:
            by_stream.setdefault(id(ack.stream), []).append(ack)
        for some in by_stream.values():
            stream: AckSink = some[0].stream  # type: ignore[assignment]
            self._deliver_to(stream, some)

    def _deliver_to(self, stream: AckSink, acks: list[Ack]) -> None:
        if not self._call(stream.acked, acks):
            stream.fail(Unavailable(f"this broker failed to deliver acks of {self.name}: connect again"))

    @requires_lock("lock")
    def _state_changed(self) -> None:
        state = self.machine.state
        if state in (ReplicaState.FENCED, ReplicaState.SEALED):
            self.fenced.set()
            self.recheck_predecessors.set()
        if state is ReplicaState.SEALED:
            self.memory.release()
            self.compactor.clear()
        for link in self.links:
            link.notify(grown=True, progressed=True, sends_now=False)
        for stream in self.streams:
            self._call(stream.wake)
        self.log.info("segment." + state.value, end=self.machine.end)
        if state is ReplicaState.SEALED and self.acked_beyond_end and self.lost is not None:
            self.log.error(
                "segment.sealed_below_watermark",
                lost_start=self.lost.start,
                lost_stop=self.lost.stop,
                lost_at_least=self.lost.at_least,
                advice="it was sealed without this broker, so acked messages are lost; the leader records which",
            )
        self._call(self._on_change)

    def _call(self, callback: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Calls others under the lock. Their errors are logged, because the segment has to stay consistent."""
        try:
            callback(*args, **kwargs)
        except Exception:
            self.log.exception("segment.callback_failed")
            return False
        return True


def segment_key(uid: str, segment: str) -> str:
    return f"{uid}/{segment}"
