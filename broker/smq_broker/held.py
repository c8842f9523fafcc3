"""One segment that this process holds: the pure machine under its lock, and those who wait for it to change."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import structlog

from smq_broker.batches import ENTRY_OVERHEAD, RangeHistogram, Wire
from smq_broker.clock import Clock
from smq_broker.memory import Memory
from smq_broker.pace import LOOKS, is_burst
from smq_broker.payloads import Compactor
from smq_core.entries import Ack, ChunkWrite, ReplicaConfig
from smq_core.errors import UnknownTopic
from smq_core.model import ChunkInfo, Durability, Segment, Topic
from smq_core.replica import SegmentReplica, State
from smq_storage.chain import Chain

if TYPE_CHECKING:
    from smq_broker.replication_out import FollowerLink

POLL = 0.25
"""How often whoever waits looks whether its client is still there, in seconds."""


class AckSink(Protocol):
    """A producer's stream, as the segment sees it. Both calls are made under the segment's lock and must be short."""

    def acked(self, acks: list[Ack]) -> None: ...

    def wake(self) -> None: ...


class Held:
    """``with held as machine:`` locks the segment; leaving the block tells everybody what has changed.

    Conditions on the one lock: ``changed`` (state, watermark), ``grown`` (something for followers), ``room`` (the tail
    has shrunk). Locks are taken in this order: segment, then a stream's or the memory's.
    """

    def __init__(
        self,
        topic: Topic,
        segment: Segment,
        incarnation: str,
        chain: Chain,
        memory: Memory,
        clock: Clock,
        *,
        wants_flush: Callable[[Held], None],
        has_news: Callable[[], None],
    ) -> None:
        self.topic = topic
        self.segment = segment
        self.incarnation = incarnation
        self.chain = chain
        self.clock = clock
        self.wire = Wire.of(topic)
        self.compactor = Compactor()
        self.histogram = RangeHistogram(segment.range)
        self.log = structlog.get_logger().bind(segment=segment.name, topic=topic.name)
        self.machine = SegmentReplica(
            ReplicaConfig(
                segment=segment.name,
                range=segment.range,
                me=incarnation,
                replicas=tuple(r.incarnation for r in segment.replicas),
                durability=segment.durability,
                predecessors=segment.predecessors,
                flush_bytes=topic.spec.flush_bytes,
                flush_interval=topic.spec.flush_interval,
            )
        )
        self.is_primary = self.machine.config.is_primary
        self.stored = segment.durability is Durability.STORED
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.grown = threading.Condition(self.lock)
        self.room = threading.Condition(self.lock)
        self.fenced = threading.Event()
        self.nudged = threading.Event()
        """Set when it is worth looking whether the predecessors are sealed: somebody acts as if they were."""
        self.streams: set[AckSink] = set()
        self.links: list[FollowerLink] = []
        self.successors: tuple[Segment, ...] = ()
        self.deleted = False
        """The topic is deleted: producers are told so, instead of an outcome that nobody goes on from."""
        self.credit = 0
        self.flush_upto = 0
        self.flush_queued = False
        self.flush_not_before = 0
        self.burst = False
        self._looks: deque[tuple[float, int]] = deque([(0.0, 0)], LOOKS)
        self.unclear: tuple[ChunkWrite, ChunkInfo] | None = None
        self.primary_streams = 0
        self.primary_left = False
        self.unnamed = False
        self.seal_check_at = 0.0
        self.sealed_at: float | None = None
        self._memory = memory
        self._wants_flush = wants_flush
        self._has_news = has_news
        self._reserved = 0
        self._readers = 0
        self._seen = (self.machine.state, 0, 0, 0, 0)

    @property
    def name(self) -> str:
        return self.segment.name

    @property
    def key(self) -> str:
        """Unique among all topics that ever were: a topic that is made again counts its segments anew."""
        return key_of(self.topic.uid, self.segment.name)

    def topic_is_deleted(self) -> UnknownTopic:
        """What producers are told once ``deleted`` is set."""
        name = self.topic.name
        return UnknownTopic(
            f"topic {name} was deleted: what was not acked before is not taken any more. Stop this producer, or make "
            "the topic anew (`smq apply` or `kubectl apply`) and open a new one",
            topic=name,
        )

    @property
    def bytes_in(self) -> int:
        """Bytes of all batches that were taken in here, as Arrow holds them."""
        counters = self.machine.counters
        return counters.bytes - counters.batches * ENTRY_OVERHEAD

    def __enter__(self) -> SegmentReplica:
        self.lock.acquire()
        return self.machine

    def __exit__(self, *_: object) -> None:
        try:
            self._settle()
        finally:
            self.lock.release()

    def reserve(self, nbytes: int) -> bool:
        """Room for one more batch of a producer? A batch is always let in when the tail is empty. Lock held."""
        machine = self.machine
        if machine.tail_bytes and machine.room() < nbytes:
            # Too little may wait here to be written by itself soon.
            self.relieve()
            return False
        if not self._memory.reserve(nbytes):
            return False
        self._reserved += nbytes
        return True

    def reader_comes(self) -> None:
        """While somebody reads here, a little of what was written to the filer is kept too."""
        with self.lock:
            self._readers += 1
            if self.machine.state is not State.SEALED:
                self.machine.keep(self._memory.give_readers(self.key))

    def reader_leaves(self) -> None:
        with self.lock:
            self._readers -= 1
            if not self._readers:
                self.machine.keep(0)
                self._memory.release_readers(self.key)

    def adjust_credit(self, kept: int) -> int:
        """At a follower: the credit to tell the primary, which says that it keeps within ``kept``. Lock held."""
        self.credit = self._memory.adjust(self.key, self.machine.tail_bytes, kept) or self.credit
        return self.credit

    def ask_flush(self, upto: int) -> None:
        """Write out what is below this offset, due or not. Lock held; it is settled at the end of the block."""
        self.flush_upto = max(self.flush_upto, upto)

    def relieve(self) -> None:
        """Write out what can be written now, or what can be first. Lock held, as for ``ask_flush``."""
        self.flush_upto = max(self.flush_upto, self.machine.watermark, self.machine.chain_end + 1)

    @property
    def flush_wanted(self) -> bool:
        return self.flush_upto > self.machine.chain_end

    def look_at_pace(self, now: float, may_wait: bool) -> None:
        """Called again and again: while messages come in a burst, and it ``may_wait``, full chunks wait. Lock held."""
        taken, chunk = self.machine.counters.bytes, self.machine.flush_threshold()
        self.burst = may_wait and any(is_burst(taken - before, now - then, chunk) for then, before in self._looks)
        self._looks.append((now, taken))

    def _settle(self) -> None:
        machine = self.machine
        if self.is_primary:
            self._hand_out(machine.take_acks())
            if machine.tail_bytes != self._reserved:
                self._memory.change(machine.tail_bytes - self._reserved)
                self._reserved = machine.tail_bytes
        now = (machine.state, machine.end, machine.watermark, machine.chain_end, machine.tail_bytes)
        before = self._seen
        if now != before:
            self._seen = now
            if self.links and (now[1] != before[1] or any(link.rests for link in self.links)):
                self.grown.notify_all()
            if now[4] < before[4] or now[0] is not before[0]:
                self.room.notify_all()
            if now[0] is not before[0]:
                self._state_changed()
            if now[2] != before[2] or now[0] is not before[0]:
                self.changed.notify_all()
        if self.is_primary and not self.flush_queued and self.chunk_due():
            self.flush_queued = True
            self._wants_flush(self)

    def _hand_out(self, acks: list[Ack]) -> None:
        if not acks:
            return
        first: AckSink = acks[0].stream  # type: ignore[assignment]
        if all(ack.stream is first for ack in acks):
            first.acked(acks)
            return
        by_stream: dict[int, list[Ack]] = {}
        for ack in acks:
            by_stream.setdefault(id(ack.stream), []).append(ack)
        for some in by_stream.values():
            stream: AckSink = some[0].stream  # type: ignore[assignment]
            stream.acked(some)

    def _state_changed(self) -> None:
        state = self.machine.state
        if state in (State.FENCED, State.SEALED):
            self.fenced.set()
            self.nudged.set()
        if state is State.SEALED:
            self._memory.release(self.key)
            self._memory.release_readers(self.key)
            self.compactor.clear()
        self.grown.notify_all()
        for stream in self.streams:
            stream.wake()
        self.log.info("segment." + state.value, end=self.machine.end)
        self._has_news()

    def chunk_due(self) -> bool:
        """Is there a chunk to write before its time has come? Lock held."""
        machine = self.machine
        if machine.chunk_in_flight or machine.state is not State.OPEN:
            return False
        if self.stored:
            return machine.end > machine.chain_end and not self.flush_not_before
        if machine.watermark <= machine.chain_end:
            return False
        # What a burst leaves waiting must fit the followers' credits twice, so that it is never stopped by them.
        waits = self.burst and machine.tail_bytes <= machine.room()
        full = machine.tail_bytes >= machine.flush_threshold()
        return (self.flush_wanted or (full and not waits)) and not self.flush_not_before


def key_of(uid: str, segment: str) -> str:
    return f"{uid}/{segment}"
