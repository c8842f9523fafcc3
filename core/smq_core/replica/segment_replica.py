"""One segment on one broker: the replicated tail, its watermark, and the acks, chunks and messages that are due.

The state machine has no IO, clock or lock, and payloads are opaque. Events are method calls. The caller polls for the
next work (``replication_for``, ``next_chunk``, ``take_acks``), so threads and the simulation each set their own pace.
Only one caller at a time may use it.

States::

    waiting --predecessors' seals read--> open --fence--> fenced --seal chunk read--> sealed
       └──────────────────────────────── fence ────────────^

Only an ``open`` replica appends and acks. Once it is ``fenced``, the seal chunk alone decides the outcome of each
batch. docs/protocol/ describes the protocol.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice

from smq_core.errors import InvalidRequest, NotOpenYet, OffsetMismatch, SegmentSealed, SequenceGap, WrongPartition
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability, Micros
from smq_core.model.kafka_producers import KafkaBatchId
from smq_core.model.partition_offsets import offsets_from_zero
from smq_core.replica.chunk_planning import entries_of_next_chunk
from smq_core.replica.flush_interval import flush_interval
from smq_core.replica.followers import Follower
from smq_core.replica.log_entries import (
    MAX_CHUNK_BYTES,
    Ack,
    BatchId,
    ChunkWrite,
    Entry,
    IncomingBatch,
    ReplicaConfig,
    ReplicationMessage,
)
from smq_core.replica.log_state import ChainState, LogState
from smq_core.replica.partition_counter import PartitionCounter
from smq_core.replica.partition_inheritance import PartitionInheritance
from smq_core.replica.pending_acks import PendingAcks
from smq_core.replica.producer_map import ProducerMap
from smq_core.replica.producer_sessions import OpenedProducer, ProducerSessions
from smq_core.replica.recent_entries import RecentEntries, count_below, entries_from


class PendingReplication(StrEnum):
    """What a follower still needs: entries, or only the watermark and the end of the chunk chain."""

    ENTRIES = "entries"
    PROGRESS = "progress"


class ReplicaState(StrEnum):
    WAITING = "waiting"
    OPEN = "open"
    FENCED = "fenced"
    SEALED = "sealed"


@dataclass(slots=True)
class ReplicaCounters:
    """Totals since the segment opened on this broker, from which its load is computed.

    A reference counts as one batch, and its messages do not count, because they cost the broker nothing.
    """

    messages: int = 0
    bytes: int = 0
    batches: int = 0


@dataclass(slots=True)
class SegmentReplica:
    """The state machine; see the module's docstring."""

    config: ReplicaConfig
    state: ReplicaState = ReplicaState.OPEN
    end: int = 0
    watermark: int = 0
    chain_end: int = 0
    journal_end: int = 0
    """The offset below which entries are in the journal, if there is one: see ``durable_end``."""
    tail_bytes: int = 0
    outcome: SealOutcome | None = None
    counters: ReplicaCounters = field(default_factory=ReplicaCounters)
    tail: deque[Entry] = field(default_factory=deque)
    recent: RecentEntries = field(default_factory=RecentEntries)
    """Entries below ``chain_end``, where the tail begins."""
    sessions: ProducerSessions = field(init=False)
    _state: LogState = field(init=False)
    """At the log's end. The sessions share its producers."""
    _chain_state: ChainState = field(init=False)
    _partition_inheritance: PartitionInheritance = field(init=False)
    """If the segment counts partitions."""
    _journaled: bool = field(init=False)
    _followers: dict[str, Follower] = field(default_factory=dict)
    _pending_acks: PendingAcks = field(default_factory=PendingAcks)
    _chunk_in_flight: ChunkWrite | None = None
    _chain_checked: Micros = 0
    _reference_ends: deque[int] = field(default_factory=deque)
    """Where the tail's entries with references end."""
    _last_appended: Micros = 0

    def __post_init__(self) -> None:
        self._state = self.state_at_start()
        self._partition_inheritance = PartitionInheritance(self.config.range)
        self.sessions = ProducerSessions(self.config, self._state.producers)
        self._chain_state = ChainState(self.config.producer_limits, self.state_at_start())
        self._journaled = self.config.journal
        self._followers = {name: Follower() for name in self.config.followers if self.config.is_primary}
        if self.config.is_primary and self.config.predecessors:
            self.state = ReplicaState.WAITING

    @staticmethod
    def recovered(config: ReplicaConfig, entries: Sequence[Entry], watermark: int) -> SegmentReplica:
        """The replica of a process that has ended, from its journal. It is fenced: it can only seal.

        ``entries`` are contiguous, and may begin before the chain's end. ``watermark`` is the highest one that the
        journal mentions. The producers' state is not recovered: the sealer reads it from the chain.
        """
        replica = SegmentReplica(config, state=ReplicaState.FENCED)
        if entries:
            replica.chain_end = entries[0].first
            replica.end = entries[-1].end
        replica.watermark = watermark
        replica.tail.extend(entries)
        replica.tail_bytes = sum(entry.batch.nbytes for entry in entries)
        return replica

    # ---- opening

    def predecessor_sealed(self, outcome: SealOutcome) -> None:
        """This predecessor's seal chunk was read from the filer. After the last one, the segment opens.

        ``unread_predecessors`` may get further names: see ``SealOutcome.uninherited``. Raises CorruptChunk if the
        segment counts partitions, and no outcome says where one of them ends.
        """
        is_new = outcome.segment in self.sessions.unread_predecessors
        self.sessions.predecessor_sealed(outcome)
        if self.config.counts_partitions and is_new:
            self._partition_inheritance.predecessor_sealed(outcome)
            if not self.sessions.unread_predecessors:
                self._partition_inheritance.apply(self._state)
        if self.state is ReplicaState.WAITING and not self.sessions.unread_predecessors:
            self.state = ReplicaState.OPEN

    @property
    def unread_predecessors(self) -> frozenset[str]:
        return frozenset(self.sessions.unread_predecessors)

    # ---- from producers, at the primary

    def open_producer(self, stream: object, producer: str, epoch: int, instance: str = "") -> OpenedProducer:
        """Opens a producer's stream, which replaces older ones of this producer. ``close_producer`` closes it.

        A segment that waits for its predecessors has no batches of any producer, so it opens streams at once, too.
        Raises SegmentSealed or ProducerFenced.
        """
        if self.state is not ReplicaState.WAITING:
            self._require_open()
        self.sessions.require_current(producer, epoch, instance)
        self.sessions.opened(producer, epoch, instance, stream)
        last = self._producers.expected(producer, epoch) - 1
        return OpenedProducer(last if last >= 0 else None, self.end, self._producers.forgotten_upto)

    def close_producer(self, stream: object, producer: str) -> None:
        """A stream of this producer ended. Only producers without an open stream may be forgotten."""
        self.sessions.closed(producer, stream)

    def append(self, stream: object, batch: IncomingBatch, now: Micros) -> Entry | None:
        """Appends the next batch of a producer. Returns None if it is a repeat; ``take_acks`` acks repeats, too.

        Raises SequenceGap (with the expected sequence), ProducerFenced, WrongPartition, NotOpenYet, SegmentSealed,
        InvalidRequest, or Unavailable if the producer has opened a newer stream.
        An error leaves the replica unchanged.
        """
        self._require_open()
        id_ = batch.id
        if isinstance(id_, KafkaBatchId):
            return self._append_kafka_batch(stream, batch, id_, now)
        self.sessions.require_current(id_.producer, id_.epoch, id_.instance)
        self.sessions.require_newest(id_.producer, id_.epoch, id_.instance, stream)
        self._require_own_partitions(batch)
        expected = self._producers.expected(id_.producer, id_.epoch)
        if id_.sequence > expected:
            raise SequenceGap(
                f"producer {id_.producer} sent batch {id_.sequence}, but {expected} is next; resend from there",
                expected=expected,
            )
        if id_.sequence < expected:
            self._ack_repeat(stream, id_)
            return None
        self._require_counts(batch)
        self._last_appended = max(self._last_appended, now)
        forgotten = self.sessions.take_forgotten(id_.producer, self._last_appended, self.watermark)
        entry = self._append_batch(batch, forgotten)
        self._pending_acks.add(entry.end, Ack(stream, id_, entry.first))
        self._advance_watermark()
        return entry

    def _append_kafka_batch(self, stream: object, batch: IncomingBatch, id_: KafkaBatchId, now: Micros) -> Entry | None:
        """As ``append``. The rules of a Kafka producer are those of its state in the log, and it has no session."""
        self._require_own_partitions(batch)
        counter = self._state.partitions
        if counter is None or batch.partition_min != batch.partition_max:
            raise InvalidRequest(
                f"{self.config.segment} takes batches of Kafka clients only if the topic's partitioner is Kafka, and "
                f"each of one partition; this one has partitions {batch.partition_min}..{batch.partition_max}"
            )
        repeat = self._state.kafka_producers.find_repeat(id_, batch.partition_min, batch.rows)
        if repeat is not None:
            # Where it ends in this log is not known, but everything up to here includes it.
            self._pending_acks.add_repeat(self.end, Ack(stream, id_, repeat.offset))
            return None
        self._require_counts(batch)
        offset = counter.next_offset(batch.partition_min)
        self._last_appended = max(self._last_appended, now)
        entry = self._append_batch(batch)
        self._pending_acks.add(entry.end, Ack(stream, id_, offset))
        self._advance_watermark()
        return entry

    def _append_batch(self, batch: IncomingBatch, forgotten: tuple[str, ...] = ()) -> Entry:
        """Adds the batch to the log. The first one carries what the segment has inherited."""
        inheritance = self._partition_inheritance if self.end == 0 else None
        entry = Entry(
            first=self.end,
            batch=batch,
            appended=self._last_appended,
            forgotten=forgotten,
            inherited=self.sessions.take_inherited(),
            partition_starts=inheritance.starts if inheritance is not None else None,
            inherited_kafka_producers=inheritance.kafka_producers if inheritance is not None else None,
        )
        self._append_entry(entry)
        return entry

    def is_new(self, id_: BatchId) -> bool:
        """Whether this is the producer's next batch: not a repeat, which is in the log already, nor one after a gap."""
        return id_.sequence == self._producers.expected(id_.producer, id_.epoch)

    def has_due_acks(self) -> bool:
        """Whether ``take_acks`` would return any."""
        return self.state is ReplicaState.OPEN and self._pending_acks.has_due(self.watermark)

    def take_acks(self) -> list[Ack]:
        """The acks that became due since the last call. A fenced replica has none; the outcome resolves the rest."""
        return self._pending_acks.take_due(self.watermark) if self.state is ReplicaState.OPEN else []

    def available_bytes(self) -> int:
        """The bytes that this primary may still append: the lowest credit of its followers, less its tail."""
        credits = [f.credit for f in self._followers.values()]
        if not credits:
            return 1 << 62
        return min(c if c is not None else 0 for c in credits) - self.tail_bytes

    # ---- replication, at the primary

    def follower_connected(self, follower: str, end: int, credit: int) -> None:
        """A replication stream opened, and the follower reported its end and its credit.

        Raises OffsetMismatch if the follower's end is outside the tail, because then it is not the expected replica.
        """
        if not self.chain_end <= end <= self.end:
            raise OffsetMismatch(
                f"follower {follower} of {self.config.segment} ends at {end}, "
                f"outside the tail {self.chain_end}..{self.end}",
                end=end,
            )
        state = self._followers[follower]
        state.sent, state.credit = end, credit
        state.sent_watermark = state.sent_chain_end = -1
        self.follower_acked(follower, end)

    def follower_granted(self, follower: str, credit: int) -> None:
        """The follower changed its credit: it accepts this many bytes of tail from now on."""
        self._followers[follower].credit = credit

    def follower_disconnected(self, follower: str) -> None:
        self._followers[follower].sent = None

    def pending_replication(self, follower: str) -> PendingReplication | None:
        """What ``replication_for`` would return: entries, only progress (watermark and chain end), or nothing."""
        state = self._followers[follower]
        if state.sent is None or self.state is not ReplicaState.OPEN:
            return None
        if state.sent < self.end:
            return PendingReplication.ENTRIES
        sent_progress = (state.sent_watermark, state.sent_chain_end)
        return PendingReplication.PROGRESS if sent_progress != (self.watermark, self.chain_end) else None

    def has_much_to_replicate(self, follower: str, max_bytes: int) -> bool:
        """Whether the entries that the follower has not been sent are more than ``max_bytes``."""
        state = self._followers[follower]
        size = 0
        if state.sent is not None and state.sent < self.end:
            for entry in entries_from(self.tail, state.sent):
                size += entry.batch.nbytes
                if size > max_bytes:
                    return True
        return False

    def replication_for(self, follower: str, *, max_bytes: int = 1 << 62) -> ReplicationMessage | None:
        """All that this follower still needs, as one message; None if there is nothing to send."""
        state = self._followers[follower]
        if state.sent is None or self.state is not ReplicaState.OPEN:
            return None
        waiting: list[Entry] = []
        size = 0
        if state.sent < self.end:
            for entry in entries_from(self.tail, state.sent):
                if waiting and size + entry.batch.nbytes > max_bytes:
                    break
                waiting.append(entry)
                size += entry.batch.nbytes
        if not waiting and (state.sent_watermark, state.sent_chain_end) == (self.watermark, self.chain_end):
            return None
        message = ReplicationMessage(
            base_offset=state.sent,
            entries=tuple(waiting),
            watermark=self.watermark,
            chain_end=self.chain_end,
            credit=self.confirmed_credit(follower),
        )
        if waiting:
            state.sent = waiting[-1].end
        state.sent_watermark, state.sent_chain_end = self.watermark, self.chain_end
        return message

    def confirmed_credit(self, follower: str) -> int:
        """The follower's last credit if the whole tail fits into it, so that it may free the rest; otherwise 0."""
        credit = self._followers[follower].credit or 0
        return credit if self.tail_bytes <= credit else 0

    def follower_acked(self, follower: str, end: int) -> None:
        """The follower has all entries below ``end``."""
        state = self._followers[follower]
        state.acked = max(state.acked, min(end, self.end))
        self._advance_watermark()

    # ---- replication, at a follower

    def replicate(self, message: ReplicationMessage) -> int:
        """Appends the entries of a primary's message that are new, and returns this replica's end.

        Raises OffsetMismatch if the message begins beyond the end, and SegmentSealed if this replica is fenced.
        """
        if self.state in (ReplicaState.FENCED, ReplicaState.SEALED):
            raise self._sealed_error()
        if message.base_offset > self.end:
            raise OffsetMismatch(
                f"{self.config.segment} ends at {self.end} here, but the message begins at {message.base_offset}",
                end=self.end,
            )
        for entry in message.entries:
            if entry.first == self.end:
                self._append_entry(entry)
        self.watermark = max(self.watermark, min(message.watermark, self.end))
        self._chain_state.chain_extended(self._trim(min(message.chain_end, self.end)))
        return self.end

    # ---- the journal

    @property
    def durable_end(self) -> int:
        """The offset below which this replica's entries count for the watermark. A follower replies with it."""
        return min(self.journal_end, self.end) if self._journaled else self.end

    def unjournaled(self, max_bytes: int = 1 << 62) -> ReplicationMessage | None:
        """The entries to write to the journal next, as one message; None if there are none."""
        if self.durable_end >= self.end:
            return None
        entries: list[Entry] = []
        size = 0
        for entry in entries_from(self.tail, self.journal_end):
            if entries and size + entry.batch.nbytes > max_bytes:
                break
            entries.append(entry)
            size += entry.batch.nbytes
        if not entries:
            return None  # it was sealed meanwhile
        return ReplicationMessage(
            base_offset=entries[0].first, entries=tuple(entries), watermark=self.watermark, chain_end=self.chain_end
        )

    def journal_written(self, end: int) -> None:
        """The journal has all entries below ``end``."""
        self.journal_end = max(self.journal_end, end)
        self._advance_watermark()

    def journal_failed(self) -> None:
        """This replica has no journal any more, and goes on without one."""
        self._journaled = False
        self._advance_watermark()

    # ---- the chain

    def next_chunk(self, now: Micros, *, force: bool = False) -> ChunkWrite | None:
        """The chunk to write now, or None. Only one write is in flight: the next chunk is due after its answer."""
        if self._chunk_in_flight is not None or self.state is not ReplicaState.OPEN or not self.config.is_primary:
            return None
        stored = self.config.durability is Durability.STORED
        upto = self.end if stored else self.watermark
        if upto <= self.chain_end:
            return None
        due = (
            stored
            or force
            or self.has_reference_to_write
            or self.tail_bytes >= self.flush_threshold()
            or self.tail_is_aged(now)
        )
        if not due:
            return None
        self._chunk_in_flight = self._chain_state.next_chunk(self.chain_end, self._next_entries(upto))
        return self._chunk_in_flight

    def _next_entries(self, upto: int) -> tuple[Entry, ...]:
        """The first entries of the tail up to ``upto``, as many as fit into one chunk."""
        ready = islice(self.tail, count_below(self.tail, upto))
        return entries_of_next_chunk(ready, max(MAX_CHUNK_BYTES, self.config.flush_bytes))

    @property
    def has_reference_to_write(self) -> bool:
        """Whether a reference below the watermark is not in the chain yet. It and the entries before it are due.

        So the collection of uploads finds it soon in the chain, and a seal has few chunks to write.
        """
        return bool(self._reference_ends) and self._reference_ends[0] <= self.watermark

    def flush_threshold(self) -> int:
        """The tail's size at which a chunk is written: ``flush_bytes``, or less if a follower's credit is small."""
        threshold = self.config.flush_bytes
        for follower in self._followers.values():
            if follower.credit is not None:
                threshold = min(threshold, follower.credit // 2)
        return threshold

    def tail_is_aged(self, now: Micros) -> bool:
        """Whether the oldest message has waited for as long as a tail of this size may."""
        if not self.tail:
            return False
        config = self.config
        waits = flush_interval(self.tail_bytes, config.flush_interval, config.flush_max_interval)
        return now - self.tail[0].appended >= waits

    def chain_check_due(self, now: Micros) -> bool:
        """True once in each flush interval for which a primary's tail waits longer than that.

        Then the primary looks whether there is an object where its next chunk will be. So it notices as early as by a
        chunk that another process seals the segment.
        """
        waits = self.state is ReplicaState.OPEN and self.config.is_primary and self._chunk_in_flight is None
        if not (waits and self.tail):
            return False
        if now - max(self.tail[0].appended, self._chain_checked) < self.config.flush_interval:
            return False
        self._chain_checked = now
        return True

    def chunk_written(self, chunk: ChunkWrite) -> None:
        """The chunk is certainly in the filer."""
        self._chunk_in_flight = None
        if self.state is ReplicaState.SEALED:
            return
        self._chain_state.chunk_written(chunk)
        self._trim(chunk.end)
        if self.config.durability is Durability.STORED:
            self._advance_watermark()

    def chunk_failed(self) -> None:
        """The write failed, and it is unknown whether the chunk exists. The same chunk is due again."""
        self._chunk_in_flight = None

    def chunk_conflict(self) -> None:
        """Another writer's object has the chunk's name, so another process seals this segment. Fences the replica."""
        self._chunk_in_flight = None
        self.fence()

    @property
    def chunk_in_flight(self) -> bool:
        return self._chunk_in_flight is not None

    # ---- sealing

    def fence(self) -> None:
        """Stops appends and acks for good."""
        if self.state in (ReplicaState.WAITING, ReplicaState.OPEN):
            self.state = ReplicaState.FENCED

    def sealed(self, outcome: SealOutcome) -> None:
        """The seal chunk exists and has this outcome. The tail is in the filer (or lost), so it is freed."""
        self.state = ReplicaState.SEALED
        self.outcome = outcome
        self.tail.clear()
        self.tail_bytes = 0
        self._reference_ends.clear()
        self.keep_recent_bytes(0)
        self._pending_acks.clear()

    def state_at_start(self) -> LogState:
        """The log's state at offset 0, as far as it is known without the predecessors."""
        starts_at_zero = self.config.counts_partitions and not self.config.predecessors
        return LogState(partitions=PartitionCounter(offsets_from_zero(self.config.range)) if starts_at_zero else None)

    def state_at_chain_end(self) -> LogState:
        """The log's state at ``chain_end``, where the tail begins."""
        return self._chain_state.at_chain_end()

    def state_at_end(self) -> LogState:
        """The log's state at ``end``."""
        return self._state.copy()

    @property
    def inherits(self) -> bool:
        """Whether this replica knows what the segment took over from its predecessors."""
        return self.end > 0 or not self.sessions.unread_predecessors

    # ---- reading

    def partition_end(self, partition: int) -> int:
        """The Kafka offset after the partition's last message, acked or not, if the segment counts them.

        Raises IndexError for a partition of another segment, and ValueError if the beginning is not known yet.
        """
        if self._state.partitions is None:
            raise ValueError(f"{self.config.segment} does not know where its partitions begin")
        return self._state.partitions.end(partition)

    def readable(self, offset: int, max_bytes: int = 1 << 62) -> Sequence[Entry]:
        """Whole entries below the watermark, from the one that contains ``offset``. Empty if there is none yet."""
        found: list[Entry] = []
        size = 0
        old = self.recent.from_offset(offset) if offset < self.chain_end else ()
        for entry in chain(old, entries_from(self.tail, offset)):
            if entry.end > self.watermark or (found and size + entry.batch.nbytes > max_bytes):
                break
            found.append(entry)
            size += entry.batch.nbytes
        return found

    @property
    def tail_start(self) -> int:
        """The lowest offset that can be read here."""
        start = self.recent.start
        return start if start is not None else self.chain_end

    def keep_recent_bytes(self, nbytes: int) -> None:
        """Sets how many bytes of entries that the filer already has are kept in memory."""
        self.recent.set_limit(nbytes)

    # ---- inside

    @property
    def _producers(self) -> ProducerMap:
        return self.sessions.producers

    def _require_own_partitions(self, batch: IncomingBatch) -> None:
        own = self.config.range
        if batch.partition_min < own.start or batch.partition_max >= own.stop:
            raise WrongPartition(
                f"{self.config.segment} covers {own}, but the batch has partitions "
                f"{batch.partition_min}..{batch.partition_max}; locate the topic again and split the batch by segment",
                segment=self.config.segment,
            )

    def _require_counts(self, batch: IncomingBatch) -> None:
        """Of batches that are new: the upload of a repeat is not read again, so its messages are not counted."""
        if self.config.counts_partitions and sum(rows for _, rows in batch.partition_rows) != batch.rows:
            raise InvalidRequest(
                f"{self.config.segment} counts the messages of each partition, but a batch of {batch.rows} messages "
                f"counts {batch.partition_rows}"
            )

    def _require_open(self) -> None:
        if self.state is ReplicaState.WAITING:
            raise NotOpenYet(
                f"{self.config.segment} opens once these predecessors are sealed: "
                + ", ".join(sorted(self.unread_predecessors)),
                segment=self.config.segment,
            )
        if self.state is not ReplicaState.OPEN:
            raise self._sealed_error()

    def _sealed_error(self) -> SegmentSealed:
        return SegmentSealed(
            f"{self.config.segment} is {self.state.value}; read its outcome, then continue with its successors",
            segment=self.config.segment,
        )

    def _append_entry(self, entry: Entry) -> None:
        batch = entry.batch
        self.tail.append(entry)
        self.end = entry.end
        self._last_appended = entry.appended
        self.tail_bytes += batch.nbytes
        if batch.reference is not None:
            self._reference_ends.append(entry.end)
        self._state.apply(entry)
        if batch.reference is None:
            self.counters.messages += batch.rows
        self.counters.bytes += batch.nbytes
        self.counters.batches += 1

    def _ack_repeat(self, stream: object, id_: BatchId) -> None:
        state = self._producers.get(id_.producer)
        assert state is not None
        first = state.first_offset(id_.sequence)
        # The end of a repeat is unknown, but the first offset of the producer's next batch is an upper bound.
        following = state.first_offset(id_.sequence + 1)
        end = following if following is not None else self.end
        self._pending_acks.add_repeat(end, Ack(stream, id_, first))

    def _advance_watermark(self) -> None:
        if self.state is not ReplicaState.OPEN or not self.config.is_primary:
            return
        if self.config.durability is Durability.STORED:
            reached = self.chain_end
        else:
            reached = self.durable_end
            for follower in self._followers.values():
                reached = min(reached, follower.acked)
        self.watermark = max(self.watermark, reached)

    def _trim(self, upto: int) -> list[Entry]:
        """Moves the entries up to ``upto`` out of the tail, and returns them."""
        gone = [self.tail.popleft() for _ in range(count_below(self.tail, upto))]
        if gone:
            self.tail_bytes -= sum(entry.batch.nbytes for entry in gone)
            self.chain_end = gone[-1].end
            self.recent.add_all(gone)
        while self._reference_ends and self._reference_ends[0] <= self.chain_end:
            self._reference_ends.popleft()
        return gone
