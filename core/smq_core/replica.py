"""One segment on one broker: the replicated tail, its watermark, and what is ready to leave.

The machine holds no bytes, clock, lock or socket. Events are method calls; what is to be done next is *asked* of it
(``replication_for``, ``next_chunk``, ``take_acks``), so that whoever drives it, threads or a simulation, keeps its own
pace.
Payloads are opaque. One caller at a time.

States::

    waiting --predecessors' seals read--> open --fence--> fenced --seal chunk read--> sealed
       └──────────────────────────────── fence ────────────^

Only ``open`` appends. From ``fenced`` on nothing is appended and nothing more is acked: the seal chunk alone says what
became of each batch. The protocol is described in docs/protocol.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Literal

from smq_core.entries import LARGEST_CHUNK, Ack, ChunkWrite, Entry, Incoming, ReplicaConfig, ReplicationMessage
from smq_core.errors import NotAtEnd, NotOpenYet, ProducerFenced, SegmentSealed, SequenceGap, WrongPartition
from smq_core.model import Durability, Producers, SealOutcome
from smq_core.producers import BatchId, ProducerMap


class State(StrEnum):
    WAITING = "waiting"
    OPEN = "open"
    FENCED = "fenced"
    SEALED = "sealed"


@dataclass(slots=True)
class _Follower:
    """A follower as its primary sees it. ``sent`` is None while no stream is open."""

    acked: int = 0
    sent: int | None = None
    told_watermark: int = -1
    told_chain_end: int = -1
    credit: int | None = None


@dataclass(frozen=True, slots=True)
class _PendingAck:
    end: int
    ack: Ack


@dataclass(slots=True)
class Counters:
    """Counted since the segment opened here."""

    messages: int = 0
    bytes: int = 0
    batches: int = 0


@dataclass(slots=True)
class SegmentReplica:
    """The machine. See the module's docstring."""

    config: ReplicaConfig
    state: State = State.OPEN
    end: int = 0
    watermark: int = 0
    chain_end: int = 0
    tail_bytes: int = 0
    outcome: SealOutcome | None = None
    counters: Counters = field(default_factory=Counters)
    tail: deque[Entry] = field(default_factory=deque)
    keep_recent: int = 0
    """Bytes that are kept below ``chain_end``, so that readers at the end need not go to the filer for each chunk."""
    recent: deque[Entry] = field(default_factory=deque)
    _recent_bytes: int = 0
    _producers: ProducerMap = field(default_factory=ProducerMap)
    _chain_producers: ProducerMap = field(default_factory=ProducerMap)
    _unread_predecessors: set[str] = field(default_factory=set)
    _followers: dict[str, _Follower] = field(default_factory=dict)
    _pending_acks: deque[_PendingAck] = field(default_factory=deque)
    _repeat_acks: list[_PendingAck] = field(default_factory=list)
    _chunk_in_flight: ChunkWrite | None = None
    _flush_asked_at: int | None = None
    _last_appended: int = 0

    def __post_init__(self) -> None:
        self._unread_predecessors = set(self.config.predecessors)
        self._followers = {name: _Follower() for name in self.config.followers if self.config.is_primary}
        if self.config.is_primary and self._unread_predecessors:
            self.state = State.WAITING

    # ---- opening

    def predecessor_sealed(self, segment: str) -> None:
        """This predecessor's seal chunk was read from the filer. With the last one the segment opens."""
        self._unread_predecessors.discard(segment)
        if self.state is State.WAITING and not self._unread_predecessors:
            self.state = State.OPEN

    @property
    def unread_predecessors(self) -> frozenset[str]:
        return frozenset(self._unread_predecessors)

    # ---- from producers, at the primary

    def producer_opens(self, producer: str, epoch: int) -> int | None:
        """A producer's stream begins: the last sequence that is held, acked or not, or None.

        Raises NotOpenYet, SegmentSealed or ProducerFenced.
        """
        self._must_append()
        known = self._producers.get(producer)
        self._must_not_be_fenced(producer, epoch)
        return known.last_sequence if known is not None and known.epoch == epoch else None

    def append(self, stream: object, batch: Incoming, now: int) -> Entry | None:
        """Takes the next batch of a producer, or recognises a repeat (None): either is acked by ``take_acks``.

        Raises SequenceGap (with the expected sequence), ProducerFenced, WrongPartition, NotOpenYet, SegmentSealed;
        then nothing has changed.
        """
        self._must_append()
        id_ = batch.id
        self._must_not_be_fenced(id_.producer, id_.epoch)
        own = self.config.range
        if batch.partition_min < own.start or batch.partition_max >= own.stop:
            raise WrongPartition(
                f"{self.config.segment} covers {own}, the batch has partitions "
                f"{batch.partition_min}..{batch.partition_max}: locate the topic again and cut it by segment",
                segment=self.config.segment,
            )
        expected = self._producers.expected(id_.producer, id_.epoch)
        if id_.sequence > expected:
            raise SequenceGap(
                f"batch {id_.sequence} of producer {id_.producer} came, {expected} is next: resend from there",
                expected=expected,
            )
        if id_.sequence < expected:
            self._ack_repeat(stream, id_)
            return None
        self._last_appended = max(self._last_appended, now)
        entry = Entry(self.end, batch, self._last_appended)
        self._take(entry)
        self._pending_acks.append(_PendingAck(entry.end, Ack(stream, id_, entry.first)))
        self._advance_watermark()
        return entry

    def take_acks(self) -> list[Ack]:
        """The acks that became due since the last call. Once fenced there are none: the outcome resolves the rest."""
        if self.state is not State.OPEN:
            return []
        due = [p.ack for p in self._repeat_acks if p.end <= self.watermark]
        if due:
            self._repeat_acks = [p for p in self._repeat_acks if p.end > self.watermark]
        while self._pending_acks and self._pending_acks[0].end <= self.watermark:
            due.append(self._pending_acks.popleft().ack)
        return due

    def room(self) -> int:
        """Bytes of tail that this primary may still take: what its followers granted, less what they may hold."""
        credits = [f.credit for f in self._followers.values()]
        if not credits:
            return 1 << 62
        return min(c if c is not None else 0 for c in credits) - self.tail_bytes

    # ---- replication, at the primary

    def follower_connected(self, follower: str, end: int, credit: int) -> None:
        """A replication stream opened; the follower said its end and what it grants.

        Raises NotAtEnd when the follower's end is not within the tail: it is not the replica it should be.
        """
        if not self.chain_end <= end <= self.end:
            raise NotAtEnd(
                f"follower {follower} of {self.config.segment} is at {end}, the tail is {self.chain_end}..{self.end}",
                end=end,
            )
        state = self._followers[follower]
        state.sent, state.credit = end, credit
        state.told_watermark = state.told_chain_end = -1
        self.follower_acked(follower, end)

    def follower_grants(self, follower: str, credit: int) -> None:
        """The follower will hold so many bytes of tail from now on, more or fewer than before."""
        self._followers[follower].credit = credit

    def follower_lost(self, follower: str) -> None:
        self._followers[follower].sent = None

    def replication_waits(self, follower: str) -> Literal["entries", "news"] | None:
        """What ``replication_for`` would tell: entries, mere news of watermark and chain end, or nothing."""
        state = self._followers[follower]
        if state.sent is None or self.state is not State.OPEN:
            return None
        if state.sent < self.end:
            return "entries"
        told = (state.told_watermark, state.told_chain_end)
        return "news" if told != (self.watermark, self.chain_end) else None

    def replication_for(self, follower: str, *, max_bytes: int = 1 << 62) -> ReplicationMessage | None:
        """Everything that waits for this follower, as one message; None when there is nothing to tell."""
        state = self._followers[follower]
        if state.sent is None or self.state is not State.OPEN:
            return None
        waiting: list[Entry] = []
        size = 0
        if state.sent < self.end:
            for entry in _entries_from(self.tail, state.sent):
                if waiting and size + entry.batch.nbytes > max_bytes:
                    break
                waiting.append(entry)
                size += entry.batch.nbytes
        if not waiting and (state.told_watermark, state.told_chain_end) == (self.watermark, self.chain_end):
            return None
        message = ReplicationMessage(
            state.sent, tuple(waiting), self.watermark, self.chain_end, self.credit_kept(follower)
        )
        if waiting:
            state.sent = waiting[-1].end
        state.told_watermark, state.told_chain_end = self.watermark, self.chain_end
        return message

    def credit_kept(self, follower: str) -> int:
        """The credit that was heard of last, once the tail is within it: the follower need not keep more. Else 0."""
        credit = self._followers[follower].credit or 0
        return credit if self.tail_bytes <= credit else 0

    def follower_acked(self, follower: str, end: int) -> None:
        """The follower holds everything below ``end``."""
        state = self._followers[follower]
        state.acked = max(state.acked, min(end, self.end))
        self._advance_watermark()

    # ---- replication, at a follower

    def replicate(self, message: ReplicationMessage) -> int:
        """Takes a primary's message and returns the own end. What is already held is passed over.

        Raises NotAtEnd when it begins beyond the own end, SegmentSealed when this replica is fenced.
        """
        if self.state in (State.FENCED, State.SEALED):
            raise self._sealed()
        if message.base_offset > self.end:
            raise NotAtEnd(
                f"{self.config.segment} ends at {self.end} here, the message begins at {message.base_offset}",
                end=self.end,
            )
        for entry in message.entries:
            if entry.first == self.end:
                self._take(entry)
        self.watermark = max(self.watermark, min(message.watermark, self.end))
        self._trim(min(message.chain_end, self.end))
        return self.end

    # ---- the chain

    def next_chunk(self, now: int, *, force: bool = False) -> ChunkWrite | None:
        """The chunk to write now, or None. One at a time: the answer must come back before there is another."""
        if self._chunk_in_flight is not None or self.state is not State.OPEN or not self.config.is_primary:
            return None
        stored = self.config.durability is Durability.STORED
        upto = self.end if stored else self.watermark
        if upto <= self.chain_end:
            return None
        due = (
            stored
            or force
            or self.tail_bytes >= self.flush_threshold()
            or now - self.tail[0].appended >= self.config.flush_interval
        )
        if not due:
            return None
        entries = self._next_entries(upto)
        producers = self._chain_producers.copy()
        producers.apply_all([(entry.batch.id, entry.first) for entry in entries])
        self._chunk_in_flight = ChunkWrite(self.chain_end, entries, producers.snapshot())
        return self._chunk_in_flight

    def _next_entries(self, upto: int) -> tuple[Entry, ...]:
        """The first entries of the tail that end at ``upto`` at the latest: as many as one chunk may have."""
        most = max(LARGEST_CHUNK, self.config.flush_bytes)
        found: list[Entry] = []
        size = 0
        for entry in self.tail:
            size += entry.batch.nbytes
            if entry.end > upto or (found and size > most):
                break
            found.append(entry)
        return tuple(found)

    def flush_threshold(self) -> int:
        """Bytes after which a chunk is written: ``flush_bytes``, or less when the followers grant little."""
        credits = [f.credit for f in self._followers.values() if f.credit is not None]
        return min([self.config.flush_bytes, *(c // 2 for c in credits)])

    def chunk_written(self, chunk: ChunkWrite) -> None:
        """The chunk is in the filer for sure."""
        self._chunk_in_flight = None
        if self.state is State.SEALED:
            return
        self._trim(chunk.end)
        if self.config.durability is Durability.STORED:
            self._advance_watermark()

    def chunk_failed(self) -> None:
        """The store could not be reached: nothing is known to be written; the same chunk is due again."""
        self._chunk_in_flight = None

    def chunk_taken(self) -> None:
        """Another writer's object has the chunk's name: somebody sealed this segment. It is fenced."""
        self._chunk_in_flight = None
        self.fence()

    @property
    def chunk_in_flight(self) -> bool:
        return self._chunk_in_flight is not None

    # ---- sealing

    def fence(self) -> None:
        """From now on nothing is appended and nothing is acked."""
        if self.state in (State.WAITING, State.OPEN):
            self.state = State.FENCED

    def sealed(self, outcome: SealOutcome) -> None:
        """The seal chunk exists and says this. The tail is in the filer now (or lost), and is let go."""
        self.state = State.SEALED
        self.outcome = outcome
        self.tail.clear()
        self.tail_bytes = 0
        self.keep(0)
        self._pending_acks.clear()
        self._repeat_acks.clear()

    def chain_producers(self) -> Producers:
        """The producers' state at ``chain_end``, where the tail begins."""
        return self._chain_producers.snapshot()

    # ---- reading

    def readable(self, offset: int, max_bytes: int = 1 << 62) -> Sequence[Entry]:
        """Whole entries from the one that holds ``offset``, all below the watermark. Empty: nothing (yet)."""
        found: list[Entry] = []
        size = 0
        old = _entries_from(self.recent, offset) if offset < self.chain_end else ()
        for entry in chain(old, _entries_from(self.tail, offset)):
            if entry.end > self.watermark or (found and size + entry.batch.nbytes > max_bytes):
                break
            found.append(entry)
            size += entry.batch.nbytes
        return found

    @property
    def tail_start(self) -> int:
        """The lowest offset that can be read here."""
        return self.recent[0].first if self.recent else self.chain_end

    def keep(self, nbytes: int) -> None:
        """From now on keeps so many bytes of what is in the filer already."""
        self.keep_recent = nbytes
        self._forget_recent()

    # ---- inside

    def _must_append(self) -> None:
        if self.state is State.WAITING:
            raise NotOpenYet(
                f"{self.config.segment} opens when its predecessors are sealed: "
                + ", ".join(sorted(self._unread_predecessors)),
                segment=self.config.segment,
            )
        if self.state is not State.OPEN:
            raise self._sealed()

    def _must_not_be_fenced(self, producer: str, epoch: int) -> None:
        known = self._producers.get(producer)
        if known is not None and epoch < known.epoch:
            raise ProducerFenced(
                f"producer {producer} is at epoch {known.epoch}; this one is {epoch} and must stop", epoch=known.epoch
            )

    def _sealed(self) -> SegmentSealed:
        return SegmentSealed(
            f"{self.config.segment} is {self.state.value}: ask for its outcome, then go on with its successors",
            segment=self.config.segment,
        )

    def _take(self, entry: Entry) -> None:
        batch = entry.batch
        self.tail.append(entry)
        self.end = entry.end
        self._last_appended = entry.appended
        self.tail_bytes += batch.nbytes
        self._producers.apply(batch.id, entry.first)
        self.counters.messages += batch.rows
        self.counters.bytes += batch.nbytes
        self.counters.batches += 1

    def _ack_repeat(self, stream: object, id_: BatchId) -> None:
        state = self._producers.get(id_.producer)
        assert state is not None
        first = state.first_offset(id_.sequence)
        # The end of a repeat is not known, but its successor batch's first offset bounds it from above.
        following = state.first_offset(id_.sequence + 1)
        end = following if following is not None else self.end
        self._repeat_acks.append(_PendingAck(end, Ack(stream, id_, first)))

    def _advance_watermark(self) -> None:
        if self.state is not State.OPEN:
            return
        if self.config.durability is Durability.STORED:
            reached = self.chain_end
        else:
            reached = min([self.end, *(f.acked for f in self._followers.values())])
        self.watermark = max(self.watermark, reached)

    def _trim(self, upto: int) -> None:
        gone: list[tuple[BatchId, int]] = []
        while self.tail and self.tail[0].end <= upto:
            entry = self.tail.popleft()
            self.tail_bytes -= entry.batch.nbytes
            self.chain_end = entry.end
            gone.append((entry.batch.id, entry.first))
            if self.keep_recent:
                self.recent.append(entry)
                self._recent_bytes += entry.batch.nbytes
        self._chain_producers.apply_all(gone)
        self._forget_recent()

    def _forget_recent(self) -> None:
        while self.recent and self._recent_bytes > self.keep_recent:
            self._recent_bytes -= self.recent.popleft().batch.nbytes


def _entries_from(entries: deque[Entry], offset: int) -> Iterator[Entry]:
    """The entries from the one that holds ``offset``."""
    lo, hi = 0, len(entries)
    while lo < hi:
        mid = (lo + hi) // 2
        if entries[mid].end <= offset:
            lo = mid + 1
        else:
            hi = mid
    for i in range(lo, len(entries)):
        yield entries[i]
