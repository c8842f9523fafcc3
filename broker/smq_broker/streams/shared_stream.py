"""A stream that many producers of one client process share: batches in, acks out, for all segments of one topic here.

A message has sub-batches of any number of sessions. Those of one segment are appended under one lock, replicated
as one message and acked in one reply. The handler's thread reads and appends; only the replier's thread writes, and it
also appends what had to wait. The handler joins the replier before it returns, because a write after the handler has
returned would crash the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from smq_broker.replication.message_spacing import ActiveClients, ClientActivity
from smq_broker.rows.batches import (
    COPY_BELOW_BYTES,
    ENTRY_OVERHEAD_BYTES,
    partition_bounds,
    partition_column,
)
from smq_broker.rows.payloads import Payload, PayloadSpan, block_bytes, compact
from smq_broker.rows.small_batches import Block, SmallBatch, rows_of
from smq_broker.runtime.metrics import BrokerMetrics
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.segments.hosted_segment import HostedSegment, ReplicationLink
from smq_broker.segments.registry import SegmentRegistry
from smq_broker.streams.producer_session import ProducerSession, ReceivedBatch, SessionPort
from smq_core.errors import InvalidRequest, MessageTooLarge, NotHosted, SmqError, Unavailable
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import error_to_pb
from smq_storage.process.locks import requires_lock

HEARTBEAT_SECONDS = 1.0
# How soon batches that wait for capacity are tried again.
RETRY_WAITING_SECONDS = 0.02
# How long acks wait at most for those of other segments. A client sends its next message when all have come.
REPLY_HOLD_SECONDS = 0.005

Item = tuple[ProducerSession | None, pb.SharedBatch.SubBatch]


class SharedStream:
    """One DoPut of a client process. ``accepting_batches`` is cleared while this process shuts down."""

    def __init__(
        self,
        registry: SegmentRegistry,
        hello: pb.PutOpen,
        reader: Any,
        writer: Any,
        *,
        max_batch: int,
        accepting_batches: threading.Event,
        broker_metrics: BrokerMetrics,
        threads: ThreadSupervisor,
        clients: ActiveClients,
    ) -> None:
        self._registry = registry
        self._uid = hello.uid
        self._incarnation = hello.incarnation
        self._reader = reader
        self._writer = writer
        self._max_batch = max_batch
        self._threads = threads
        self._activity = ClientActivity(clients)
        self._port = SessionPort(accepting_batches, broker_metrics.waits.inc)
        self._sessions: dict[int, ProducerSession] = {}
        self._refused: list[tuple[int, SmqError]] = []
        """Sessions that could not be opened, for the replier."""
        self._ended = False
        self._error: SmqError | None = None
        self._replier_is_dead = False
        self._written_at = 0.0

    def serve(self) -> None:
        """Returns when the stream has ended. Errors were sent to the client and are raised."""
        replier = self._threads.start(
            Task("shared-replies", self._reply_loop, on_death=self._replier_died, restarts=False)
        )
        try:
            while self._receive():
                pass
        except SmqError as error:
            self._error = error
            raise
        finally:
            with self._port.wake:
                self._ended = True
                self._port.wake.notify()
            try:
                replier.join()
                if self._replier_is_dead and self._error is not None:
                    with suppress(OSError, pa.ArrowException, fl.FlightError):
                        self._writer.write(pb.SharedReply(error=error_to_pb(self._error)).SerializeToString())
            finally:
                self._activity.close()
                for session in list(self._sessions.values()):
                    session.close()

    # ---- the handler's thread

    def _receive(self) -> bool:
        """Handles one message; False at the end of the stream."""
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            return False
        if self._replier_is_dead:
            raise Unavailable("this broker failed to send acks: connect again")
        header = parse(pb.SharedBatch, chunk.app_metadata or b"")
        if header.sub_batches:
            self._activity.received(time.monotonic())
        for request in header.opens:
            self._open(request)
        self._append(header.sub_batches, rows_of(header, chunk.data))
        for number in header.closes:
            session = self._sessions.pop(number, None)
            if session is not None:
                session.close()
        return True

    def _open(self, request: pb.SharedBatch.Open) -> None:
        number = request.session
        if number in self._sessions:
            raise InvalidRequest(f"session {number} is open already: give each session a number of its own")
        try:
            hosted = self._registry.find(request.segment, self._uid, self._incarnation, wait_seconds=0.0)
            if not hosted.is_primary:
                raise NotHosted(
                    f"this broker follows {hosted.name}; its primary is at {hosted.segment.primary.address}",
                    segment=hosted.name,
                    primary=hosted.segment.primary.address,
                )
            same_schema = hosted.wire.check_stream(self._reader.schema)
            session = self._sessions[number] = ProducerSession(
                number, hosted, request.producer, same_schema, self._port
            )
            try:
                session.open(self._max_batch)
            except BaseException:
                del self._sessions[number]
                session.close()
                raise
        except SmqError as error:
            with self._port.wake:
                self._refused.append((number, error))
                self._port.wake.notify()

    def _append(self, sub_batches: Iterable[pb.SharedBatch.SubBatch], rows: Block | None) -> None:
        """Appends sub-batches. Those of sessions that have ended meanwhile are dropped."""
        items: list[Item] = [(self._sessions.get(it.session), it) for it in sub_batches]
        count = sum(sub_batch.rows for _, sub_batch in items)
        if count != (0 if rows is None else rows.num_rows) or not all(sub_batch.rows for _, sub_batch in items):
            raise InvalidRequest(f"sub-batches with {count} rows do not fit the rows of their message")
        if rows is None:
            return
        size = block_bytes(rows)
        if size > self._max_batch + ENTRY_OVERHEAD_BYTES:
            raise MessageTooLarge(
                f"a message has {size} bytes, at most {self._max_batch} are accepted: send smaller ones",
                size=size,
                limit=self._max_batch,
            )
        first = 0
        links: list[ReplicationLink] = []
        try:
            for hosted, group in groupby(items, lambda item: None if item[0] is None else item[0].hosted):
                run = list(group)
                stop = first + sum(sub_batch.rows for _, sub_batch in run)
                if hosted is not None:
                    self._append_run(hosted, run, rows, first, stop, links)
                first = stop
        finally:
            for link in links:  # those of several segments may share a stream, and go out as one message
                link.send_now()

    def _append_run(
        self,
        hosted: HostedSegment,
        run: list[Item],
        rows: Block,
        first: int,
        stop: int,
        links: list[ReplicationLink],
    ) -> None:
        """Appends the sub-batches of one segment, whose rows ``first .. stop - 1`` share a block.

        Adds the links on which this thread has to send them.
        """
        sessions = [session for session, _ in run if session is not None]
        is_part = stop - first < rows.num_rows
        part = rows.slice(first, stop - first) if is_part else rows
        block: Block
        try:
            if isinstance(part, SmallBatch):
                block = hosted.wire.accept_small(part)
            else:
                block = hosted.wire.accept(part, sessions[0].same_schema)
                if is_part and block.get_total_buffer_size() >= COPY_BELOW_BYTES:
                    block = pa.concat_batches([block, hosted.wire.empty])  # or it would keep other segments' rows
        except SmqError as error:
            for session in sessions:
                session.fail(error)
            return
        received = _split(run, block)
        with hosted as machine:
            end = machine.end
            spans: list[PayloadSpan] = [
                (batch.payload, batch.rows)
                for session, batch in zip(sessions, received, strict=True)
                if session.append(machine, batch) and batch.is_small
            ]
            full = hosted.compactor.add(spans)
            if machine.end > end:
                links += hosted.links_to_send_now()
        if full is not None:
            compact(full)

    # ---- the replier's thread

    def _reply_loop(self) -> None:
        try:
            self._write(pb.SharedReply())
            while self._send_replies():
                pass
        except (OSError, pa.ArrowException, fl.FlightError):
            return  # the client has disconnected

    def _replier_died(self) -> None:
        self._replier_is_dead = True

    def _send_replies(self) -> bool:
        port = self._port
        with port.wake:
            if not port.changed and not self._refused and not self._ended:
                port.wake.wait(RETRY_WAITING_SECONDS if port.waiting else HEARTBEAT_SECONDS)
            self._hold_acks()
            changed = [(session, session.take_acks()) for session in port.changed]
            port.changed = {}
            port.is_urgent = False
            waiting = list(port.waiting)
            refused, self._refused = self._refused, []
            ended = self._ended
        reply = pb.SharedReply()
        for number, error in refused:
            reply.sessions.add(session=number, reply=pb.ProducerReply(error=error_to_pb(error)))
        for session, acks in changed:
            if session.ended:
                continue
            for one in session.replies(acks):
                reply.sessions.add(session=session.number, reply=one)
            if session.ended:
                self._sessions.pop(session.number, None)
                session.close()
        if ended and self._error is not None:
            reply.error.CopyFrom(error_to_pb(self._error))
        if reply.sessions or ended or time.monotonic() - self._written_at >= HEARTBEAT_SECONDS:
            self._write(reply)
        for session in waiting:
            session.append_waiting()
        self._activity.check(time.monotonic())
        return not ended

    @requires_lock("_port.wake")
    def _hold_acks(self) -> None:
        """Lets acks that come together share a reply."""
        port = self._port
        until = time.monotonic() + REPLY_HOLD_SECONDS
        while port.changed and port.unacked and not (port.is_urgent or self._refused or self._ended):
            left = until - time.monotonic()
            if left <= 0:
                return
            port.wake.wait(left)

    def _write(self, reply: pb.SharedReply) -> None:
        self._writer.write(reply.SerializeToString())
        self._written_at = time.monotonic()


def _split(run: list[Item], block: Block) -> list[ReceivedBatch]:
    """The sub-batches of one segment, in the block that has their rows one after the other."""
    partitions = block.partitions if isinstance(block, SmallBatch) else partition_column(block)
    size = block_bytes(block)
    bytes_per_row = size / block.num_rows
    received = []
    first = 0
    for _, sub_batch in run:
        own = partitions[first : first + sub_batch.rows]
        low, high = partition_bounds(own)
        received.append(
            ReceivedBatch(
                sequence=sub_batch.sequence,
                rows=sub_batch.rows,
                nbytes=int(bytes_per_row * sub_batch.rows) + ENTRY_OVERHEAD_BYTES,
                payload=Payload(block, first),
                partitions=own,
                partition_min=low,
                partition_max=high,
                is_small=size < COPY_BELOW_BYTES,
            )
        )
        first += sub_batch.rows
    return received
