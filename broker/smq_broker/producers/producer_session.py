"""One producer's session for one segment, on a lane that many producers share.

A batch waits in its session while the segment has not opened yet, while there is no capacity, or while its uploads are
checked. So it holds up nobody else on the lane. The segment's lock guards the waiting batches, the port's the replies
(docs/threads.md).
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace

from smq_broker.producers.claims import check_identity
from smq_broker.producers.received_batches import ReceivedBatch
from smq_broker.producers.replies import final_reply, group_acks, opened_reply, rejected_reply
from smq_broker.producers.session_port import SessionPort
from smq_broker.rows.payloads import PayloadSpan, compact
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import InvalidRequest, Overloaded, ReferenceRejected, SegmentSealed, SmqError, Unavailable
from smq_core.model.partition_offsets import PartitionRows
from smq_core.replica.log_entries import Ack, BatchId
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_proto.error_conversion import error_to_pb
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import requires_lock


class ProducerSession:
    """See the module's docstring. Raises InvalidRequest if the producer's identity is not valid."""

    def __init__(
        self, number: int, *, hosted: HostedSegment, hello: pb.ProducerHello, same_schema: bool, port: SessionPort
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
        self._rejected: list[pb.ProducerReply] = []
        self._error: SmqError | None = None
        self._waiting: deque[ReceivedBatch] = deque()
        self._last_appended = -1
        self._rejections = 0
        """How many batches were rejected. What was sent before the last one has other sequences by now."""
        self._is_checking = False
        """Whether a thread checks the uploads of the first waiting batch."""
        self._checked: ReceivedBatch | None = None
        self._check_valid_until = 0.0
        """In monotonic seconds, of the batch whose uploads were checked last."""
        self._checked_partition_rows: PartitionRows = ()
        """Of that batch, if it is a reference."""

    @property
    def is_open(self) -> bool:
        """Whether the segment takes batches."""
        return self.hosted.machine.state is ReplicaState.OPEN

    def open(self, max_batch_bytes: int) -> None:
        """Opens the producer at the segment. If that is being sealed, its outcome is the only reply.

        Raises ProducerFenced.
        """
        with self.hosted as machine:
            self.hosted.streams.add(self)
            self._port.count_sessions(1)
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
            if self in self.hosted.streams:
                self.hosted.streams.discard(self)
                self._port.count_sessions(-1)
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
        if self._error is not None or self.ended or self._was_sent_before_a_rejection(batch):
            return False
        if not self._waiting and self._may_append(machine, batch):
            return self._append(machine, batch)
        self._let_wait(batch)
        return False

    def append_waiting(self) -> None:
        """Appends as many of the waiting batches as there is capacity for."""
        hosted = self.hosted
        full: list[PayloadSpan] | None = None
        with hosted as machine:
            spans: list[PayloadSpan] = []
            while self._waiting and self._error is None and self._may_append(machine, self._waiting[0]):
                batch = self._waiting.popleft()
                with self._port.wake:
                    self._port.release_waiting(batch.incoming.nbytes)
                if self._append(machine, batch):
                    spans += batch.spans_to_join
            if self._error is not None:
                self._drop_waiting()
            if not self._waiting:
                with self._port.wake:
                    self._port.waiting.pop(self, None)
            full = hosted.compactor.add(spans)
        if full is not None:
            compact(full)

    @requires_lock("hosted.lock")
    def _was_sent_before_a_rejection(self, batch: ReceivedBatch) -> bool:
        """Whether the producer did not know of the last rejection: the batch's sequence has another meaning now."""
        if batch.rejections > self._rejections:
            self.fail(
                InvalidRequest(
                    f"batch {batch.incoming.id.sequence} counts {batch.rejections} rejections in this session"
                )
            )
        return batch.rejections != self._rejections

    @requires_lock("hosted.lock")
    def _may_append(self, machine: SegmentReplica, batch: ReceivedBatch) -> bool:
        """Whether the machine may decide on the batch now. Reserves memory for it if the segment is open."""
        if machine.state is ReplicaState.WAITING:
            # The producer may learn earlier than the segment that the predecessors are sealed.
            self.hosted.recheck_predecessors.set()
            return False
        if machine.state is not ReplicaState.OPEN:
            return True
        if self._needs_check(batch):
            self._start_check()
            return False
        return self._port.accepting_batches.is_set() and self.hosted.memory.reserve(batch.incoming.nbytes)

    @requires_lock("hosted.lock")
    def _append(self, machine: SegmentReplica, batch: ReceivedBatch) -> bool:
        try:
            incoming = batch.incoming
            if incoming.reference is not None and machine.config.counts_partitions:
                incoming = replace(incoming, partition_rows=self._checked_partition_rows)
            if machine.append(self, incoming, self.hosted.clock.now()) is None:
                return False
        except SegmentSealed:
            return False  # the outcome will say that it is not in the log
        except SmqError as error:
            self.fail(error)
            return False
        self._last_appended = batch.incoming.id.sequence
        with self._port.wake:
            self._port.unacked[self] = None
        if batch.payload is not None:
            self.hosted.histogram.count(*batch.payload.location, batch.incoming)
        return True

    def batch_id(self, sequence: int) -> BatchId:
        return BatchId(self._producer, self._epoch, sequence, self._instance)

    @requires_lock("hosted.lock")
    def _let_wait(self, batch: ReceivedBatch) -> None:
        with self._port.wake:
            is_kept = self._port.add_waiting(self, batch.incoming.nbytes, may_exceed=self.is_open)
        if is_kept:
            if not self._waiting and not self._is_checking:
                self._port.count_wait()
            self._waiting.append(batch)
            return
        self._drop_waiting()
        self.fail(
            Overloaded(
                f"{self.hosted.name} takes no more batches at present, and too many wait already: send this one "
                "again later"
            )
        )

    @requires_lock("hosted.lock")
    def _drop_waiting(self) -> None:
        with self._port.wake:
            self._port.release_waiting(sum(batch.incoming.nbytes for batch in self._waiting))
            self._port.waiting.pop(self, None)
        self._waiting.clear()

    # ---- uploads of batches

    @requires_lock("hosted.lock")
    def _needs_check(self, batch: ReceivedBatch) -> bool:
        if batch.uploads is None:
            return False
        return self._checked is not batch or time.monotonic() >= self._check_valid_until

    @requires_lock("hosted.lock")
    def _start_check(self) -> None:
        """Checks in another thread, because the filer may take long to answer."""
        if self._is_checking or self._error is not None:
            return
        try:
            self._port.start_upload_check(self.hosted.name, self._check_uploads, self._check_died)
            self._is_checking = True
        except Unavailable as error:
            self.fail(error)

    def _check_uploads(self) -> None:
        """Checks the first of the waiting batches, and those that are the first after it."""
        while (batch := self._next_to_check()) is not None:
            assert batch.uploads is not None
            valid_until = time.monotonic() + self.hosted.upload_check_valid_seconds
            try:
                partition_rows = self._port.uploads.check_before_append(
                    self.hosted, self.batch_id(batch.incoming.id.sequence), batch.uploads, self._require_open
                )
            except ReferenceRejected as error:
                self._reject(batch, error)
            except SmqError as error:
                self.fail(error)
            else:
                with self.hosted.lock:
                    self._checked, self._check_valid_until = batch, valid_until
                    self._checked_partition_rows = partition_rows
            self.append_waiting()

    def _next_to_check(self) -> ReceivedBatch | None:
        with self.hosted as machine:
            batch = self._waiting[0] if self._waiting else None
            if batch is None or machine.state is not ReplicaState.OPEN or not self._needs_check(batch):
                self._is_checking = False
                return None
            return batch

    def _reject(self, batch: ReceivedBatch, error: ReferenceRejected) -> None:
        """The batch will never be in the log, and those behind it are sent again with other sequences."""
        with self.hosted.lock:
            if self._waiting and self._waiting[0] is batch:
                self._drop_waiting()
                self._rejections += 1
                with self._port.wake:
                    self._rejected.append(rejected_reply(batch.incoming.id.sequence, error))
                    self._mark_urgent()

    def _require_open(self) -> None:
        """Raises Unavailable."""
        if self.ended or self._error is not None:
            raise Unavailable("the session has ended")

    def _check_died(self) -> None:
        self.fail(Unavailable(f"this broker failed to check uploads for {self.hosted.name}: send the batch again"))

    # ---- replies

    @requires_lock("_port.wake")
    def take_changes(self) -> tuple[list[Ack], list[pb.ProducerReply]]:
        """The acks and rejections since the last call."""
        acks, self._acks = self._acks, []
        rejected, self._rejected = self._rejected, []
        return acks, rejected

    def replies(self, acks: list[Ack], rejected: list[pb.ProducerReply]) -> list[pb.ProducerReply]:
        """What to send now, in this order. The last reply ends the session."""
        opened, self._opened = self._opened, None
        replies = [opened] if opened is not None else []
        replies += group_acks(acks)
        replies += rejected
        final = final_reply(self.hosted, self._producer)
        if self._error is not None:
            final = pb.ProducerReply(error=error_to_pb(self._error))
        if final is not None:
            replies.append(final)
            self.ended = True
        return replies
