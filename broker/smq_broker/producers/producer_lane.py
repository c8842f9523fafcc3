"""One lane of a client: batches of its producers in, acks out, for all segments of one topic here.

A frame has sub-batches of any number of sessions. Those of one segment are appended under one lock, replicated as one
message and acked in one reply. The handler's thread reads and appends; only the replier's thread writes, and it also
appends what had to wait. The handler joins the replier before it returns, because a write after the handler has
returned would crash the process.

A lane whose client has used up its quota is not read meanwhile; it belongs to one identity and topic.

A client has a small lane and a bulk lane. What waits on a small lane is bounded, and a session that exceeds it ends. A
bulk lane stops reading instead, because its batches cost much to send again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from smq_broker.access.callers import Caller, StreamQuota
from smq_broker.producers.producer_session import ProducerSession
from smq_broker.producers.received_batches import ReceivedBatch, read_reference, read_rows
from smq_broker.producers.session_port import SessionPort
from smq_broker.producers.upload_checker import UploadChecker
from smq_broker.replication.message_spacing import ActiveClients, ClientActivity
from smq_broker.rows.batches import ENTRY_OVERHEAD_BYTES
from smq_broker.rows.blocks import COPY_BELOW_BYTES, Block
from smq_broker.rows.payloads import PayloadSpan, compact
from smq_broker.rows.small_batches import rows_of
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.segments.hosted_segment import HostedSegment, ReplicationLink
from smq_broker.segments.registry import SegmentRegistry
from smq_core.errors import InvalidRequest, MessageTooLarge, NotHosted, SmqError, Unavailable
from smq_core.model.entities import SECOND
from smq_proto.error_conversion import error_to_pb
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import requires_lock

HEARTBEAT_SECONDS = 1.0
# How soon batches that wait for capacity are tried again.
RETRY_WAITING_SECONDS = 0.02
# How long acks of a small lane wait at most for those of other segments. A client sends its next frame when all have
# come.
REPLY_HOLD_SECONDS = 0.005

SubBatch = pb.ProducerFrame.SubBatch


class ProducerLane:
    """One DoPut of a client process. ``accepting_batches`` is cleared while this process shuts down."""

    def __init__(
        self,
        registry: SegmentRegistry,
        *,
        caller: Caller,
        quota: StreamQuota,
        hello: pb.PutOpen,
        reader: Any,
        writer: Any,
        max_batch: int,
        accepting_batches: threading.Event,
        uploads: UploadChecker,
        broker_metrics: BrokerMetrics,
        threads: ThreadSupervisor,
        clients: ActiveClients,
    ) -> None:
        self._registry = registry
        self._caller = caller
        self._quota = quota
        self._uid = hello.uid
        self._incarnation = hello.incarnation
        self._reader = reader
        self._writer = writer
        self._max_batch = max_batch
        self._threads = threads
        self._activity = ClientActivity(clients)
        self._is_bulk = hello.producers.lane == pb.LANE_BULK
        self._port = SessionPort(
            is_bulk=self._is_bulk,
            accepting_batches=accepting_batches,
            uploads=uploads,
            broker_metrics=broker_metrics,
            threads=threads,
        )
        self._sessions: dict[int, ProducerSession] = {}
        self._refused: list[tuple[int, SmqError]] = []
        """Sessions that could not be opened, for the replier."""
        self._ended = False
        self._error: SmqError | None = None
        self._replier_is_dead = False
        self._denial: SmqError | None = None
        """Why the client may not go on."""
        self._written_at = 0.0

    def serve(self) -> None:
        """Returns when the lane has ended. Errors were sent to the client and are raised."""
        replier = self._threads.start(
            Task(kind="producer-replies", run=self._reply_loop, on_death=self._replier_died, restarts=False)
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
                        self._writer.write(pb.ProducerFrameReply(error=error_to_pb(self._error)).SerializeToString())
            finally:
                self._activity.close()
                for session in list(self._sessions.values()):
                    session.close()

    # ---- the handler's thread

    def _receive(self) -> bool:
        """Handles one frame; False at the end of the lane."""
        if self._quota.pause_seconds() > 0 and not self._port.wait_for_quota(self._quota):
            return False
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            return False
        if self._replier_is_dead:
            raise Unavailable("this broker failed to send acks: connect again")
        if self._denial is not None:
            raise self._denial
        frame = parse(pb.ProducerFrame, chunk.app_metadata or b"")
        if frame.sub_batches and not self._is_bulk:
            self._activity.received(time.monotonic())
        for request in frame.opens:
            self._open(request)
        rows = rows_of(frame, chunk.data)
        self._append(frame.sub_batches, rows)
        if self._quota.is_limited:
            self._quota.use(*_size_of(frame.sub_batches, rows))
        for number in frame.closes:
            session = self._sessions.pop(number, None)
            if session is not None:
                session.close()
        self._port.wait_for_capacity()
        return True

    def _open(self, request: pb.ProducerFrame.Open) -> None:
        number = request.session
        if number in self._sessions:
            raise InvalidRequest(f"session {number} is open already: give each session a number of its own")
        try:
            self._caller.require_producer(self._uid, request.producer.producer)
            hosted = self._registry.find(request.segment, self._uid, self._incarnation, wait_seconds=0.0)
            if not hosted.is_primary:
                raise NotHosted(
                    f"this broker follows {hosted.name}; its primary is at {hosted.segment.primary.address}",
                    segment=hosted.name,
                    primary=hosted.segment.primary.address,
                )
            same_schema = hosted.wire.check_stream(self._reader.schema)
            session = self._sessions[number] = ProducerSession(
                number, hosted=hosted, hello=request.producer, same_schema=same_schema, port=self._port
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

    def _append(self, sub_batches: Sequence[SubBatch], rows: Block | None) -> None:
        """Appends sub-batches. Those of sessions that have ended meanwhile are dropped."""
        count = sum(it.rows for it in sub_batches)
        if count != (0 if rows is None else rows.num_rows) or any(
            (it.rows > 0) is it.HasField("reference") for it in sub_batches
        ):
            raise InvalidRequest(f"sub-batches with {count} rows do not fit the rows of their frame")
        size = 0 if rows is None else rows.nbytes
        if size > self._max_batch + ENTRY_OVERHEAD_BYTES:
            self._refuse_large(sub_batches, size)
            return
        first = 0
        links: list[ReplicationLink] = []
        try:
            # Each session is found once, because the replier removes those that end meanwhile.
            addressed = [(self._sessions.get(it.session), it) for it in sub_batches]
            for (hosted, is_reference), group in groupby(addressed, _kind_of):
                run = list(group)
                own = [it for _, it in run]
                stop = first + sum(it.rows for it in own)
                if hosted is not None:
                    sessions = [session for session, _ in run if session is not None]
                    ids = [session.batch_id(it.sequence) for session, it in zip(sessions, own, strict=True)]
                    received: list[ReceivedBatch] = []
                    if is_reference:
                        received = list(map(read_reference, own, ids))
                    elif (block := self._accept(hosted, sessions, rows, first, stop)) is not None:
                        counts = hosted.machine.config.counts_partitions
                        received = read_rows(own, ids, block, counts_partitions=counts)
                    if received:
                        _append_run(hosted, sessions, received, links)
                first = stop
        finally:
            for link in links:  # those of several segments may share a lane, and go out as one frame
                link.send_now()

    def _refuse_large(self, sub_batches: Sequence[SubBatch], size: int) -> None:
        """Ends the sessions of a frame that is too large. Other producers on the lane did nothing wrong."""
        error = MessageTooLarge(
            f"a frame has {size} bytes, at most {self._max_batch} are accepted: send smaller ones",
            size=size,
            limit=self._max_batch,
        )
        for it in sub_batches:
            session = self._sessions.get(it.session)
            if session is not None:
                session.fail(error)

    @staticmethod
    def _accept(
        hosted: HostedSegment, sessions: Sequence[ProducerSession], rows: Block | None, first: int, stop: int
    ) -> Block | None:
        """The rows ``first .. stop - 1`` as the segment keeps them. None if it refuses them."""
        assert rows is not None
        is_part = stop - first < rows.num_rows
        part = rows.slice(first, stop - first) if is_part else rows
        try:
            # A part that is not copied would keep other segments' rows.
            copy_below = sys.maxsize if is_part else COPY_BELOW_BYTES
            return part.accept(hosted.wire, sessions[0].same_schema, copy_below)
        except SmqError as error:
            for session in sessions:
                session.fail(error)
            return None

    # ---- the replier's thread

    def _reply_loop(self) -> None:
        try:
            self._write(pb.ProducerFrameReply())
            while self._send_replies():
                pass
        except (OSError, pa.ArrowException, fl.FlightError):
            return  # the client has disconnected
        finally:
            self._port.close()

    def _replier_died(self) -> None:
        self._replier_is_dead = True

    def _send_replies(self) -> bool:
        port = self._port
        with port.wake:
            if not port.changed and not self._refused and not self._ended:
                port.wake.wait(RETRY_WAITING_SECONDS if port.waiting else HEARTBEAT_SECONDS)
            self._hold_acks()
            changed = [(session, session.take_changes()) for session in port.changed]
            port.changed = {}
            port.is_urgent = False
            waiting = port.take_waiting()
            refused, self._refused = self._refused, []
            ended = self._ended
        if time.monotonic() >= self._caller.check_at and not self._may_go_on():
            ended = True
        reply = pb.ProducerFrameReply()
        for number, error in refused:
            reply.sessions.add(session=number, reply=pb.ProducerReply(error=error_to_pb(error)))
        for session, (acks, rejected) in changed:
            if session.ended:
                continue
            for one in session.replies(acks, rejected):
                reply.sessions.add(session=session.number, reply=one)
            if session.ended:
                self._sessions.pop(session.number, None)
                session.close()
        if self._quota.left_seconds > 0:
            reply.throttled = round(self._quota.left_seconds * SECOND)
        if ended and self._error is not None:
            reply.error.CopyFrom(error_to_pb(self._error))
        if reply.sessions or ended or time.monotonic() - self._written_at >= HEARTBEAT_SECONDS:
            self._write(reply)
        if self._denial is not None:  # also if the client neither sends nor leaves
            for session in list(self._sessions.values()):
                session.close()
        for session in waiting:
            session.append_waiting()
        self._activity.check(time.monotonic())
        return not ended

    def _may_go_on(self) -> bool:
        """False once the client may not: then the next reply is the last one, and nothing more is appended."""
        try:
            self._caller.recheck()
            return True
        except SmqError as error:
            self._denial = self._error = error
            return False

    @requires_lock("_port.wake")
    def _hold_acks(self) -> None:
        """Lets acks that come together share a reply."""
        port = self._port
        until = time.monotonic() + REPLY_HOLD_SECONDS
        while port.changed and port.unacked and not (self._is_bulk or port.is_urgent or self._refused or self._ended):
            left = until - time.monotonic()
            if left <= 0:
                return
            port.wake.wait(left)

    def _write(self, reply: pb.ProducerFrameReply) -> None:
        self._writer.write(reply.SerializeToString())
        self._written_at = time.monotonic()


def _size_of(sub_batches: Sequence[SubBatch], rows: Block | None) -> tuple[int, int]:
    """Bytes and messages, those of uploads included."""
    nbytes = sum(it.reference.bytes for it in sub_batches) + (0 if rows is None else rows.nbytes)
    return nbytes, sum(it.rows + it.reference.rows for it in sub_batches)


def _kind_of(addressed: tuple[ProducerSession | None, SubBatch]) -> tuple[HostedSegment | None, bool]:
    session, sub_batch = addressed
    return None if session is None else session.hosted, sub_batch.HasField("reference")


def _append_run(
    hosted: HostedSegment,
    sessions: Sequence[ProducerSession],
    received: Sequence[ReceivedBatch],
    links: list[ReplicationLink],
) -> None:
    """Appends batches of one segment. Adds the links on which this thread has to send them."""
    with hosted as machine:
        end = machine.end
        spans: list[PayloadSpan] = []
        for session, batch in zip(sessions, received, strict=True):
            if session.append(machine, batch):
                spans += batch.spans_to_join
        full = hosted.compactor.add(spans)
        if machine.end > end:
            links += hosted.links_to_send_now()
    if full is not None:
        compact(full)
