"""A producer's stream at the primary: batches in, acks out.

The handler's thread reads and appends batches. Only the acker's thread writes. The handler joins the acker before it
returns, without a deadline, because a write after the handler has returned would crash the process.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from smq_broker.references.upload_checker import UploadChecker
from smq_broker.rows.batches import (
    COPY_BELOW_BYTES,
    ENTRY_OVERHEAD_BYTES,
    partition_bounds,
    partition_column,
    size_of_names,
)
from smq_broker.rows.payloads import Payload, compact
from smq_broker.runtime.lock_order import BrokerLock
from smq_broker.runtime.metrics import BrokerMetrics
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.segments.hosted_segment import CLIENT_CHECK_SECONDS, HostedSegment
from smq_broker.streams.producer_claims import check_identity
from smq_broker.streams.producer_replies import final_reply, group_acks, opened_reply
from smq_core.errors import (
    InvalidRequest,
    MessageTooLarge,
    ReferenceRejected,
    SegmentSealed,
    SmqError,
    Unavailable,
)
from smq_core.model.reference import Reference
from smq_core.replica.log_entries import Ack, BatchId, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import error_to_pb, reference_from_pb
from smq_storage.process.locks import make_rlock, requires_lock

HEARTBEAT = 1.0
OPEN_TIMEOUT_SECONDS = 2.0
LAST_ACKS_TIMEOUT_SECONDS = 10.0


class ProducerStream:
    """One DoPut of a producer. ``accepting_batches`` is cleared while this process shuts down."""

    def __init__(
        self,
        hosted: HostedSegment,
        hello: pb.ProducerHello,
        context: Any,
        reader: Any,
        writer: Any,
        *,
        max_batch: int,
        uploads: UploadChecker,
        accepting_batches: threading.Event,
        broker_metrics: BrokerMetrics,
        threads: ThreadSupervisor,
    ) -> None:
        check_identity(hello.producer, hello.instance)
        self._hosted = hosted
        self._producer = hello.producer
        self._epoch = hello.epoch
        self._instance = hello.instance
        self._context = context
        self._reader = reader
        self._writer = writer
        self._max_batch = max_batch
        self._uploads = uploads
        self._accepting_batches = accepting_batches
        self._metrics = broker_metrics
        self._threads = threads
        self._wake = threading.Condition(make_rlock(BrokerLock.STREAM))
        self._acks: list[Ack] = []
        self._rejections = 0
        self._unsent_rejections: list[pb.ProducerReply] = []
        self._appended = 0
        self._acked = 0
        self._ended = False
        self._error: SmqError | None = None
        self._failure: SmqError | None = None
        """Why acks do not reach the producer any more."""
        self._acker_is_dead = False
        self._opened: pb.ProducerReply | None = None

    # ---- called by the segment, under its lock

    @requires_lock("_hosted.lock")
    def acked(self, acks: list[Ack]) -> None:
        with self._wake:
            self._acks.extend(acks)
            self._wake.notify()

    @requires_lock("_hosted.lock")
    def wake(self) -> None:
        with self._wake:
            self._wake.notify()

    def fail(self, error: SmqError) -> None:
        with self._wake:
            self._failure = self._failure or error
            self._wake.notify()

    # ---- the handler's thread

    def serve(self) -> None:
        """Returns when the stream has ended. Errors were sent to the producer and are raised."""
        acker: threading.Thread | None = None
        try:
            same_schema = self._hosted.wire.check_stream(self._reader.schema)
            if not self._open():
                return
            acker = self._threads.start(Task("acker", self._ack_loop, on_death=self._acker_died, restarts=False))
            while self._receive_batch(same_schema):
                pass
            self._wait_for_last_acks()
        except SegmentSealed:
            pass
        except SmqError as error:
            self._error = error
            raise
        finally:
            if not self._is_sealing():
                with self._wake:
                    self._ended = True
                    self._wake.notify()
            try:
                if acker is not None:
                    acker.join()
                if acker is None or self._acker_is_dead:
                    self._ack_loop()  # nobody else writes any more
            finally:
                with self._hosted.lock:
                    self._hosted.streams.discard(self)
                    self._hosted.machine.close_producer(self, self._producer)

    def _is_sealing(self) -> bool:
        """The segment is being sealed: the acker ends by itself after it has sent the outcome."""
        return self._error is None and self._hosted.machine.state in (ReplicaState.FENCED, ReplicaState.SEALED)

    def _open(self) -> bool:
        """Registers the stream; False if the segment accepts nothing any more.

        A segment that is not open yet has no batches of any producer, so it replies at once too.
        """
        with self._hosted as machine:
            self._hosted.streams.add(self)
            try:
                opened = machine.open_producer(self, self._producer, self._epoch, self._instance)
            except SegmentSealed:
                return False
        self._opened = opened_reply(opened, self._max_batch)
        return True

    def _wait_until_open(self) -> None:
        """Waits until the segment opens, or for a timeout, after which it still refuses the batch.

        The producer may learn earlier than the segment that the predecessors are sealed.
        """
        hosted = self._hosted
        hosted.recheck_predecessors.set()
        deadline = time.monotonic() + OPEN_TIMEOUT_SECONDS
        with hosted.lock:
            while hosted.machine.state is ReplicaState.WAITING and time.monotonic() <= deadline:
                hosted.changed.wait(CLIENT_CHECK_SECONDS)

    def _receive_batch(self, same_schema: bool) -> bool:
        """Receives and appends one batch; False at the end of the stream."""
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            return False
        if self._failure is not None:
            raise self._failure
        if chunk.data is None or not chunk.data.num_rows:
            if chunk.data is None and chunk.app_metadata is not None:
                self._receive_metadata(chunk.app_metadata)
                return True
            raise InvalidRequest("a batch has no rows: do not send empty batches")
        header = parse(pb.ProducerBatch, chunk.app_metadata or b"")
        if self._sent_before_a_rejection(header):
            return True
        size = chunk.data.get_total_buffer_size()
        if size > self._max_batch + ENTRY_OVERHEAD_BYTES:
            raise MessageTooLarge(
                f"a batch has {size} bytes, at most {self._max_batch} are accepted: send smaller ones",
                size=size,
                limit=self._max_batch,
            )
        batch = self._hosted.wire.accept(chunk.data, same_schema)
        if self._hosted.machine.state is ReplicaState.WAITING:
            self._wait_until_open()
        if not header.large_values:
            self._append_rows(header.sequence, batch, ())
            return True
        names, timeout = tuple(header.large_values), self._hosted.upload_check_valid_seconds
        while self._has_objects(header) and not self._append_rows(header.sequence, batch, names, timeout):
            pass
        return True

    def _sent_before_a_rejection(self, header: pb.ProducerBatch) -> bool:
        """Whether the producer sent this before it knew of the last rejection: its sequence has another meaning now."""
        if header.rejections > self._rejections:
            raise InvalidRequest(f"batch {header.sequence} counts {header.rejections} rejections on this stream")
        return header.rejections < self._rejections

    def _receive_metadata(self, metadata: Any) -> None:
        """A frame without a batch is a reference, or else a keepalive."""
        try:
            header = parse(pb.ProducerBatch, metadata)
        except InvalidRequest:
            return
        if not header.HasField("reference") or self._sent_before_a_rejection(header):
            return
        if self._hosted.machine.state is ReplicaState.WAITING:
            self._wait_until_open()
        reference = reference_from_pb(header.reference)
        id_ = self._batch_id(header.sequence)
        incoming = IncomingBatch(
            id=id_,
            rows=reference.rows,
            nbytes=ENTRY_OVERHEAD_BYTES,
            partition_min=reference.partition_min,
            partition_max=reference.partition_max,
            payload=None,
            reference=reference,
        )
        timeout = self._hosted.upload_check_valid_seconds
        while self._may_publish(reference, id_) and not self._append(incoming, lambda: None, timeout):
            pass

    def _may_publish(self, reference: Reference, id_: BatchId) -> bool:
        """Whether the reference may be published. If not, it is rejected."""
        try:
            self._uploads.check_before_append(self._hosted, id_, reference, self._require_connected)
        except ReferenceRejected as error:
            self._reject(id_.sequence, error)
            return False
        return True

    def _has_objects(self, header: pb.ProducerBatch) -> bool:
        """Whether the large values of a batch may be published. If not, the batch is rejected."""
        id_ = self._batch_id(header.sequence)
        try:
            self._uploads.check_large_values(self._hosted, id_, header.large_values, self._require_connected)
        except ReferenceRejected as error:
            self._reject(header.sequence, error)
            return False
        return True

    def _reject(self, sequence: int, error: ReferenceRejected) -> None:
        rejected = pb.ProducerReply.Rejected(sequence=sequence, error=error_to_pb(error))
        with self._wake:
            self._rejections += 1
            self._unsent_rejections.append(pb.ProducerReply(rejected=rejected))
            self._wake.notify()

    def _batch_id(self, sequence: int) -> BatchId:
        return BatchId(self._producer, self._epoch, sequence, self._instance)

    def _require_connected(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._context.is_cancelled():
            raise InvalidRequest("the producer has disconnected")

    def _append_rows(
        self, sequence: int, batch: pa.RecordBatch, large_values: tuple[str, ...], timeout: float = math.inf
    ) -> bool:
        """False if there was no capacity for the rows within ``timeout`` seconds."""
        partitions = partition_column(batch)
        low, high = partition_bounds(partitions)
        size = batch.get_total_buffer_size()
        payload = Payload(batch)
        incoming = IncomingBatch(
            id=self._batch_id(sequence),
            rows=batch.num_rows,
            nbytes=size + ENTRY_OVERHEAD_BYTES + size_of_names(large_values),
            partition_min=low,
            partition_max=high,
            payload=payload,
            large_values=large_values,
        )
        hosted = self._hosted
        full = None

        def appended() -> None:
            nonlocal full
            hosted.histogram.count(partitions, low, high)
            full = hosted.compactor.add([(payload, incoming.rows)]) if size < COPY_BELOW_BYTES else None

        done = self._append(incoming, appended, timeout)
        if full is not None:
            compact(full)
        return done

    def _append(self, incoming: IncomingBatch, on_appended: Callable[[], None], timeout: float = math.inf) -> bool:
        """Waits for capacity and appends. ``on_appended`` is called, with the lock held, unless it is a repeat.

        False if there was no capacity within ``timeout`` seconds.
        """
        hosted = self._hosted
        waited, deadline = False, time.monotonic() + timeout
        while time.monotonic() < deadline:
            with hosted as machine:
                if machine.state is not ReplicaState.OPEN or (
                    self._accepting_batches.is_set() and hosted.reserve(incoming.nbytes)
                ):
                    if machine.append(self, incoming, hosted.clock.now()) is not None:
                        on_appended()
                    self._appended += 1
                    return True
            if not waited:
                waited = True
                self._metrics.waits.inc()
            with hosted.lock:
                hosted.capacity_freed.wait(0.05)
            self._require_connected()
        return False

    def _wait_for_last_acks(self) -> None:
        """A producer that half-closed its stream still gets the acks of its last batches."""
        deadline = time.monotonic() + LAST_ACKS_TIMEOUT_SECONDS
        while time.monotonic() < deadline and not self._context.is_cancelled() and self._failure is None:
            with self._hosted.lock:
                if (
                    self._appended <= self._acked + len(self._acks)
                    or self._hosted.machine.state is not ReplicaState.OPEN
                ):
                    return
                self._hosted.changed.wait(CLIENT_CHECK_SECONDS)

    # ---- the acker's thread

    def _ack_loop(self) -> None:
        try:
            opened, self._opened = self._opened, None
            if opened is not None:
                self._write(opened)
            while self._send_replies():
                pass
        except (OSError, pa.ArrowException, fl.FlightError):
            return  # the producer has disconnected

    def _acker_died(self) -> None:
        self._acker_is_dead = True
        self.fail(Unavailable(f"this broker failed to send acks of {self._hosted.name}: connect again"))

    def _send_replies(self) -> bool:
        machine = self._hosted.machine
        with self._wake:
            if (
                not self._acks
                and not self._unsent_rejections
                and not self._ended
                and machine.state is not ReplicaState.SEALED
            ):
                self._wake.wait(HEARTBEAT)
            acks, self._acks = self._acks, []
            rejections, self._unsent_rejections = self._unsent_rejections, []
            ended = self._ended
        for reply in (*group_acks(acks), *rejections):
            self._write(reply)
        self._acked += len(acks)
        if self._failure is not None:
            self._write(pb.ProducerReply(error=error_to_pb(self._failure)))
            return False
        if self._error is not None and ended:
            self._write(pb.ProducerReply(error=error_to_pb(self._error)))
            return False
        final = final_reply(self._hosted, self._producer)
        if final is not None:
            self._write(final)
            return False
        if ended and not acks:
            return False
        if not acks and not rejections:
            if self._context.is_cancelled():
                return False
            self._write(pb.ProducerReply(heartbeat=pb.ProducerReply.Heartbeat(watermark=machine.watermark)))
        return True

    def _write(self, reply: pb.ProducerReply) -> None:
        self._writer.write(reply.SerializeToString())
