"""A producer's stream at the primary: batches in, acks out.

Two threads: the handler reads batches and appends them; the acker alone writes. The handler joins the acker before it
returns, without a deadline: a write after the handler's return would end the process.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from smq_broker.batches import ENTRY_OVERHEAD, SMALL, bounds_of, partitions_of
from smq_broker.held import POLL, Held
from smq_broker.meters import Meters
from smq_broker.payloads import Payload, compact
from smq_core.entries import Ack, Incoming
from smq_core.errors import InvalidRequest, MessageTooLarge, NotOpenYet, SegmentSealed, SmqError
from smq_core.producers import BatchId
from smq_core.replica import State
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import error_to_pb, outcome_to_pb

HEARTBEAT = 1.0
WAIT_TO_OPEN = 2.0
WAIT_FOR_LAST_ACKS = 10.0
UNKNOWN_OFFSET = (1 << 64) - 1
"""Told when a repeated batch is in the log but longer ago than first offsets are kept."""


class ProducerStream:
    """One DoPut of a producer. ``intake`` is cleared while this process takes nothing in (it is leaving)."""

    def __init__(
        self,
        held: Held,
        hello: pb.ProducerHello,
        context: Any,
        reader: Any,
        writer: Any,
        *,
        max_batch: int,
        intake: threading.Event,
        meters: Meters,
    ) -> None:
        if not hello.producer or len(hello.producer) > 256:
            raise InvalidRequest("a producer's name has 1 to 256 characters")
        self._held = held
        self._producer = hello.producer
        self._epoch = hello.epoch
        self._context = context
        self._reader = reader
        self._writer = writer
        self._max_batch = max_batch
        self._intake = intake
        self._meters = meters
        self._wake = threading.Condition()
        self._acks: list[Ack] = []
        self._appended = 0
        self._acked = 0
        self._ended = False
        self._error: SmqError | None = None
        self._opened: pb.ProducerReply | None = None
        self._entered = False

    # ---- called by the segment, under its lock

    def acked(self, acks: list[Ack]) -> None:
        with self._wake:
            self._acks.extend(acks)
            self._wake.notify()

    def wake(self) -> None:
        with self._wake:
            self._wake.notify()

    # ---- the handler's thread

    def serve(self) -> None:
        """Returns when the stream has ended; its errors have been told to the producer."""
        acker = threading.Thread(target=self._reply, name="acker", daemon=True)
        try:
            same = self._held.wire.check_stream(self._reader.schema)
            sealed = not self._open()
            acker.start()
            if sealed:
                return
            while self._take_next(same):
                pass
            self._wait_for_last_acks()
        except SegmentSealed:
            if acker.ident is None:  # never started; one that has told the seal may have ended already
                acker.start()
        except SmqError as error:
            self._error = error
            if acker.ident is None:
                acker.start()
            raise
        finally:
            if not self._sealing():
                with self._wake:
                    self._ended = True
                    self._wake.notify()
            if acker.ident is not None:
                acker.join()
            with self._held.lock:
                self._held.streams.discard(self)

    def _sealing(self) -> bool:
        """The segment is on its way to be sealed: the acker ends by itself when it has told so."""
        return self._error is None and self._held.machine.state in (State.FENCED, State.SEALED)

    def _open(self) -> bool:
        """Takes the stream in; False when the segment takes nothing any more.

        One that has not opened yet holds nothing of any producer, and can say so at once.
        """
        with self._held as machine:
            self._held.streams.add(self)
            try:
                last = machine.producer_opens(self._producer, self._epoch)
                self._entered = True
            except SegmentSealed:
                return False
            except NotOpenYet:
                last = None
        opened = pb.ProducerReply.Opened(last_sequence=last, max_batch_bytes=self._max_batch)
        self._opened = pb.ProducerReply(opened=opened)
        return True

    def _enter(self) -> None:
        """Who sends has heard that the predecessors are sealed, maybe before the segment has.

        Raises NotOpenYet when it does not open soon.
        """
        held = self._held
        held.nudged.set()
        until = time.monotonic() + WAIT_TO_OPEN
        while True:
            with held as machine:
                try:
                    machine.producer_opens(self._producer, self._epoch)
                    self._entered = True
                    return
                except NotOpenYet:
                    if time.monotonic() > until:
                        raise
                held.changed.wait(POLL)

    def _take_next(self, same: bool) -> bool:
        """One batch; False at the end of the stream."""
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            return False
        if chunk.data is None or not chunk.data.num_rows:
            if chunk.data is None and chunk.app_metadata is not None:
                return True  # a sign of life
            raise InvalidRequest("a batch without rows was sent: leave it out")
        header = parse(pb.ProducerBatch, chunk.app_metadata or b"")
        size = chunk.data.get_total_buffer_size()
        if size > self._max_batch + ENTRY_OVERHEAD:
            raise MessageTooLarge(
                f"a batch of {size} bytes came, at most {self._max_batch} are taken: send smaller ones",
                max_batch_bytes=self._max_batch,
            )
        batch = self._held.wire.accept(chunk.data, same)
        if not self._entered:
            self._enter()
        self._append(header.sequence, batch)
        return True

    def _append(self, sequence: int, batch: pa.RecordBatch) -> None:
        partitions = partitions_of(batch)
        low, high = bounds_of(partitions)
        size = batch.get_total_buffer_size()
        payload = Payload(batch)
        incoming = Incoming(
            id=BatchId(self._producer, self._epoch, sequence),
            rows=batch.num_rows,
            nbytes=size + ENTRY_OVERHEAD,
            partition_min=low,
            partition_max=high,
            payload=payload,
        )
        held = self._held
        waited = False
        full = None
        while True:
            with held as machine:
                if machine.state is not State.OPEN or (self._intake.is_set() and held.reserve(incoming.nbytes)):
                    if machine.append(self, incoming, held.clock.now()) is not None:
                        held.histogram.count(partitions, low, high)
                        full = held.compactor.add([(payload, incoming.rows)]) if size < SMALL else None
                    self._appended += 1
                    break
            if not waited:
                waited = True
                self._meters.waits.inc()
            with held.lock:
                held.room.wait(0.05)
            if self._context.is_cancelled():
                raise InvalidRequest("the producer has left")
        if full is not None:
            compact(full)

    def _wait_for_last_acks(self) -> None:
        """A producer that ended its stream politely still hears what became of its last batches."""
        until = time.monotonic() + WAIT_FOR_LAST_ACKS
        while time.monotonic() < until and not self._context.is_cancelled():
            with self._held.lock:
                if self._appended <= self._acked + len(self._acks) or self._held.machine.state is not State.OPEN:
                    return
                self._held.changed.wait(POLL)

    # ---- the acker's thread

    def _reply(self) -> None:
        try:
            if self._opened is not None:
                self._write(self._opened)
            while self._reply_next():
                pass
        except (OSError, pa.ArrowException, fl.FlightError):
            return  # the producer has vanished
        except Exception:
            self._held.log.exception("acker.failed", producer=self._producer)

    def _reply_next(self) -> bool:
        machine = self._held.machine
        with self._wake:
            if not self._acks and not self._ended and machine.state is not State.SEALED:
                self._wake.wait(HEARTBEAT)
            acks, self._acks = self._acks, []
            ended = self._ended
        for reply in grouped(acks):
            self._write(reply)
        self._acked += len(acks)
        if self._error is not None and ended:
            self._write(pb.ProducerReply(error=error_to_pb(self._error)))
            return False
        if self._held.deleted and machine.state in (State.FENCED, State.SEALED):
            self._write(pb.ProducerReply(error=error_to_pb(self._held.topic_is_deleted())))
            return False
        if machine.state is State.SEALED:
            assert machine.outcome is not None
            told = outcome_to_pb(machine.outcome, only=self._producer, successors=self._held.successors)
            self._write(pb.ProducerReply(sealed=told))
            return False
        if ended and not acks:
            return False
        if not acks:
            if self._context.is_cancelled():
                return False
            self._write(pb.ProducerReply(heartbeat=pb.ProducerReply.Heartbeat(watermark=machine.watermark)))
        return True

    def _write(self, reply: pb.ProducerReply) -> None:
        self._writer.write(reply.SerializeToString())


def grouped(acks: list[Ack]) -> list[pb.ProducerReply]:
    """Acks as few replies: each covers consecutive sequences."""
    replies: list[pb.ProducerReply] = []
    offsets: list[int] = []
    first = following = -1
    for ack in acks:
        if ack.id.sequence != following:
            if offsets:
                replies.append(_acks(first, offsets))
            first, offsets = ack.id.sequence, []
        offsets.append(UNKNOWN_OFFSET if ack.first_offset is None else ack.first_offset)
        following = ack.id.sequence + 1
    if offsets:
        replies.append(_acks(first, offsets))
    return replies


def _acks(first: int, offsets: list[int]) -> pb.ProducerReply:
    return pb.ProducerReply(acks=pb.ProducerReply.Acks(first_sequence=first, first_offsets=offsets))
