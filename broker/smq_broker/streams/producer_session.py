"""One producer's session for one segment, on a stream that many producers share.

A batch waits in its session while the segment has not opened yet, or while there is no capacity. So it holds up nobody
else on the stream. The segment's lock guards the waiting batches, the stream's lock the replies (docs/threads.md).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smq_broker.rows.batches import Partitions
from smq_broker.rows.payloads import Payload, PayloadSpan, compact
from smq_broker.runtime.lock_order import BrokerLock
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.streams.producer_claims import check_identity
from smq_broker.streams.producer_replies import final_reply, group_acks, opened_reply
from smq_core.errors import Overloaded, SegmentSealed, SmqError
from smq_core.replica.log_entries import Ack, BatchId, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import error_to_pb
from smq_storage.process.locks import make_lock, make_rlock, requires_lock

# What may wait in all sessions of a stream. Beyond it a session ends, and its producer sends again later.
MAX_WAITING_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ReceivedBatch:
    """A sub-batch of a shared stream. ``block_bytes`` is the size of the block that its rows share with others."""

    sequence: int
    rows: int
    nbytes: int
    payload: Payload
    partitions: Partitions | Sequence[int]
    partition_min: int
    partition_max: int
    is_small: bool
    """Its block is worth being joined with others."""


class WaitingBytes:
    """The bytes that wait in all sessions of one stream. Safe from many threads."""

    def __init__(self, limit: int = MAX_WAITING_BYTES) -> None:
        self._limit = limit
        self._used = 0
        self._lock = make_lock()

    def reserve(self, nbytes: int) -> bool:
        with self._lock:
            if self._used and self._used + nbytes > self._limit:
                return False
            self._used += nbytes
            return True

    def release(self, nbytes: int) -> None:
        with self._lock:
            self._used -= nbytes


class SessionPort:
    """What a session needs from its stream. ``wake`` guards the replies of all sessions."""

    def __init__(self, accepting_batches: threading.Event, count_wait: Callable[[], None]) -> None:
        self.wake = threading.Condition(make_rlock(BrokerLock.STREAM))
        self.changed: dict[ProducerSession, None] = {}
        """Sessions that may have replies, in the order of the changes."""
        self.waiting: dict[ProducerSession, None] = {}
        """Sessions with batches that wait."""
        self.unacked: dict[ProducerSession, None] = {}
        """Sessions with batches that are in the log and not acked yet."""
        self.is_urgent = False
        """Whether a session has a reply that is no ack."""
        self.waiting_bytes = WaitingBytes()
        self.accepting_batches = accepting_batches
        self.count_wait = count_wait


class ProducerSession:
    """See the module's docstring. Raises InvalidRequest if the producer's identity is not valid."""

    def __init__(
        self, number: int, hosted: HostedSegment, hello: pb.ProducerHello, same_schema: bool, port: SessionPort
    ) -> None:
        check_identity(hello.producer, hello.instance)
        self.number = number
        self.hosted = hosted
        self.same_schema = same_schema
        self.ended = False
        """The last reply was taken, or the session was closed."""
        self._producer = hello.producer
        self._epoch = hello.epoch
        self._instance = hello.instance
        self._port = port
        self._acks: list[Ack] = []
        self._opened: pb.ProducerReply | None = None
        self._error: SmqError | None = None
        self._waiting: deque[ReceivedBatch] = deque()
        self._last_appended = -1

    def open(self, max_batch_bytes: int) -> None:
        """Opens the producer at the segment. If that is being sealed, its outcome is the only reply.

        Raises ProducerFenced.
        """
        with self.hosted as machine:
            self.hosted.streams.add(self)
            try:
                opened = machine.open_producer(self, self._producer, self._epoch, self._instance)
            except SegmentSealed:
                opened = None
        with self._port.wake:
            if opened is not None:
                self._opened = opened_reply(opened, max_batch_bytes)
            self._mark_urgent()

    def close(self) -> None:
        """Forgets the session; batches that wait are dropped. Repeatable."""
        self.ended = True
        with self.hosted.lock:
            self.hosted.streams.discard(self)
            self.hosted.machine.close_producer(self, self._producer)
            self._drop_waiting()
        with self._port.wake:
            self._forget_unacked()

    # ---- called by the segment, under its lock

    @requires_lock("hosted.lock")
    def acked(self, acks: list[Ack]) -> None:
        with self._port.wake:
            self._acks.extend(acks)
            if acks[-1].id.sequence >= self._last_appended:
                self._forget_unacked()
            self._mark_changed()

    @requires_lock("hosted.lock")
    def wake(self) -> None:
        with self._port.wake:
            self._mark_urgent()

    def fail(self, error: SmqError) -> None:
        with self._port.wake:
            self._error = self._error or error
            self._mark_urgent()

    @requires_lock("_port.wake")
    def _mark_changed(self) -> None:
        port = self._port
        if not port.changed or not port.unacked:
            port.wake.notify()
        port.changed[self] = None

    @requires_lock("_port.wake")
    def _mark_urgent(self) -> None:
        self._forget_unacked()
        self._port.is_urgent = True
        self._port.changed[self] = None
        self._port.wake.notify()

    @requires_lock("_port.wake")
    def _forget_unacked(self) -> None:
        self._port.unacked.pop(self, None)

    # ---- batches

    @requires_lock("hosted.lock")
    def append(self, machine: SegmentReplica, batch: ReceivedBatch) -> bool:
        """Appends a batch, or keeps it until there is capacity. True if it is in the log now, and was not before."""
        if self._error is not None or self.ended:
            return False
        if not self._waiting and self._may_append(machine, batch):
            return self._append(machine, batch)
        if not self._port.waiting_bytes.reserve(batch.nbytes):
            self._drop_waiting()
            self.fail(
                Overloaded(
                    f"{self.hosted.name} takes no more batches at present, and too many wait already: send this one "
                    "again later"
                )
            )
            return False
        if not self._waiting:
            self._port.count_wait()
            with self._port.wake:
                self._port.waiting[self] = None
                self._port.wake.notify()
        self._waiting.append(batch)
        return False

    def append_waiting(self) -> None:
        """Appends as many of the waiting batches as there is capacity for."""
        hosted = self.hosted
        full: list[PayloadSpan] | None = None
        with hosted as machine:
            spans: list[PayloadSpan] = []
            while self._waiting and self._error is None and self._may_append(machine, self._waiting[0]):
                batch = self._waiting.popleft()
                self._port.waiting_bytes.release(batch.nbytes)
                if self._append(machine, batch) and batch.is_small:
                    spans.append((batch.payload, batch.rows))
            if self._error is not None:
                self._drop_waiting()
            if not self._waiting:
                with self._port.wake:
                    self._port.waiting.pop(self, None)
            full = hosted.compactor.add(spans)
        if full is not None:
            compact(full)

    @requires_lock("hosted.lock")
    def _may_append(self, machine: SegmentReplica, batch: ReceivedBatch) -> bool:
        """Whether the machine may decide on the batch now. Reserves memory for it if the segment is open."""
        if machine.state is ReplicaState.WAITING:
            # The producer may learn earlier than the segment that the predecessors are sealed.
            self.hosted.recheck_predecessors.set()
            return False
        if machine.state is not ReplicaState.OPEN:
            return True
        return self._port.accepting_batches.is_set() and self.hosted.reserve(batch.nbytes)

    @requires_lock("hosted.lock")
    def _append(self, machine: SegmentReplica, batch: ReceivedBatch) -> bool:
        incoming = IncomingBatch(
            id=BatchId(self._producer, self._epoch, batch.sequence, self._instance),
            rows=batch.rows,
            nbytes=batch.nbytes,
            partition_min=batch.partition_min,
            partition_max=batch.partition_max,
            payload=batch.payload,
        )
        try:
            if machine.append(self, incoming, self.hosted.clock.now()) is None:
                return False
        except SegmentSealed:
            return False  # the outcome will say that it is not in the log
        except SmqError as error:
            self.fail(error)
            return False
        self._last_appended = batch.sequence
        with self._port.wake:
            self._port.unacked[self] = None
        self.hosted.histogram.count(batch.partitions, batch.partition_min, batch.partition_max)
        return True

    @requires_lock("hosted.lock")
    def _drop_waiting(self) -> None:
        self._port.waiting_bytes.release(sum(batch.nbytes for batch in self._waiting))
        self._waiting.clear()
        with self._port.wake:
            self._port.waiting.pop(self, None)

    # ---- replies

    @requires_lock("_port.wake")
    def take_acks(self) -> list[Ack]:
        """The acks since the last call."""
        acks, self._acks = self._acks, []
        return acks

    def replies(self, acks: list[Ack]) -> list[pb.ProducerReply]:
        """What to send now, in this order. The last reply ends the session."""
        opened, self._opened = self._opened, None
        replies = [opened] if opened is not None else []
        replies += group_acks(acks)
        final = final_reply(self.hosted, self._producer)
        if self._error is not None:
            final = pb.ProducerReply(error=error_to_pb(self._error))
        if final is not None:
            replies.append(final)
            self.ended = True
        return replies
