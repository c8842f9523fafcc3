"""One Flight stream to a broker that all producers of a client share, for one topic and schema version.

What is ready at one moment goes out as one message, so the cost of a message is shared, too. One thread opens the
stream and writes, another one reads the replies. No lock of a producer is taken while this stream's lock is held.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.flight as fl

from smq.producing.partitioning import SubBatch
from smq.producing.streams.segment_sender import NoBatch, SegmentSender
from smq.producing.streams.shared_session import SessionOwner, SharedSession
from smq.transport.dialer import Dialer
from smq.transport.flight_channel import FlightChannel
from smq_core.errors import InvalidRequest, SmqError
from smq_core.model.entities import Replica, Segment
from smq_core.producing.send_queue import SentSubBatch
from smq_proto.flight import flight_errors, from_flight, parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, error_from_pb

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 256 << 10
UNRESPONSIVE_AFTER_SECONDS = 2.0
"""The stream is cut after so long without a reply; heartbeats count as replies."""


class SharedStream:
    """``start`` it after its first session was added. ``on_ended`` is called before the sessions learn of the end, with
    whether the broker is of a version that has no shared streams.
    """

    def __init__(
        self,
        primary: Replica,
        uid: str,
        schema: pa.Schema,
        dialer: Dialer,
        on_ended: Callable[[SharedStream, bool], None],
    ) -> None:
        self.primary = primary
        self._uid = uid
        self._schema = schema
        self._dialer = dialer
        self._on_ended = on_ended
        self._wake = threading.Condition()
        self._numbers = itertools.count(1)
        self._sessions: dict[int, SharedSession] = {}
        self._ready: list[SharedSession] = []
        self._closing = False
        self._broken = False
        self._channel: FlightChannel | None = None
        self._error: SmqError | None = None
        """The broker's last word."""
        self._has_answered = False
        self._last_reply_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"smq-sender-{primary.broker}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        return not self._sessions

    def add_session(
        self, segment: Segment, hello: pb.ProducerHello, owner: SessionOwner, sender: SegmentSender
    ) -> SharedSession | None:
        """None if this stream has ended. The caller holds the producer's lock."""
        with self._wake:
            if self._closing or self._broken:
                return None
            number = next(self._numbers)
            opening = pb.SharedBatch.Open(session=number, segment=segment.name, producer=hello)
            session = SharedSession(number, segment, opening, owner, sender, self._mark_ready)
            self._sessions[number] = session
        self._mark_ready(session)
        return session

    def is_unresponsive(self, now: float) -> bool:
        return self._channel is not None and now - self._last_reply_at > UNRESPONSIVE_AFTER_SECONDS

    def abort(self) -> None:
        """Cuts the connection, even while threads use it. Repeatable."""
        channel = self._channel
        if channel is not None:
            channel.abort()

    def close(self) -> None:
        """Ends the stream after what is ready was sent. Repeatable; ``join`` waits for it."""
        with self._wake:
            self._closing = True
            self._wake.notify()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _mark_ready(self, session: SharedSession) -> None:
        with self._wake:
            if not session.is_ready:
                session.is_ready = True
                self._ready.append(session)
                if len(self._ready) == 1:
                    self._wake.notify()

    def _remove(self, session: SharedSession) -> bool:
        """False if somebody else has removed it, and lets it finish."""
        return self._sessions.pop(session.number, None) is not None

    # ---- the sender's thread

    def _run(self) -> None:
        failure: SmqError | None = None
        writer: fl.FlightStreamWriter | None = None
        reader: threading.Thread | None = None
        try:
            channel = FlightChannel.open(self.primary.address, self._dialer)
            self._last_reply_at = time.monotonic()
            self._channel = channel
            hello = pb.PutOpen(
                protocol=PROTOCOL, incarnation=self.primary.incarnation, uid=self._uid, shared=pb.SharedHello()
            )
            descriptor = fl.FlightDescriptor.for_command(hello.SerializeToString())
            with flight_errors():
                writer, metadata = channel.client.do_put(descriptor, self._schema)
            reader = threading.Thread(
                target=self._read, args=(metadata,), name=f"smq-replies-{self.primary.broker}", daemon=True
            )
            reader.start()
            self._send_loop(writer)
        except SmqError as error:
            failure = error
        except Exception as error:
            log.exception("the stream to %s failed", self.primary.broker)
            failure = from_flight(error)
        failure = self._end(writer, reader) or failure
        self._fail_sessions(self._error or failure)

    def _send_loop(self, writer: fl.FlightStreamWriter) -> None:
        """Sends until the stream breaks or is closed. Raises SmqError if a write fails."""
        while True:
            with self._wake:
                while not self._ready and not self._closing and not self._broken:
                    self._wake.wait()
                if self._broken or not self._ready:
                    return
                ready, self._ready = self._ready, []
                for session in ready:
                    session.is_ready = False
            finished = self._send(writer, ready)
            for session in finished:
                session.finish(None, as_planned=True)

    def _send(self, writer: fl.FlightStreamWriter, ready: list[SharedSession]) -> list[SharedSession]:
        """Sends one message with what these sessions have. Returns those that end with it."""
        message = pb.SharedBatch()
        batches: list[tuple[SharedSession, SentSubBatch]] = []
        finished: list[SharedSession] = []
        left = MAX_MESSAGE_BYTES
        for session in ready:
            if self._sessions.get(session.number) is not session:
                continue
            if left <= 0:
                self._mark_ready(session)
                continue
            if not session.is_announced:
                session.is_announced = True
                message.opens.append(session.hello)
            taken, reason = session.take_batches(left)
            for sent in taken:
                assert isinstance(sent.sub_batch, SubBatch)
                left -= sent.sub_batch.cost
                batches.append((session, sent))
            if reason is None:
                self._mark_ready(session)
            elif reason is not NoBatch.WAIT:
                message.closes.append(session.number)
                finished.append(session)
        with flight_errors():
            self._write(writer, message, batches)
        return [session for session in finished if self._remove(session)]

    def _write(
        self,
        writer: fl.FlightStreamWriter,
        message: pb.SharedBatch,
        batches: list[tuple[SharedSession, SentSubBatch]],
    ) -> None:
        # The broker appends neighbours of one segment together.
        batches.sort(key=lambda item: item[0].segment.name)
        rows: list[pa.RecordBatch] = []
        for session, sent in batches:
            assert isinstance(sent.sub_batch, SubBatch) and isinstance(sent.sub_batch.batch, pa.RecordBatch)
            rows.append(sent.sub_batch.batch)
            message.sub_batches.add(session=session.number, sequence=sent.sequence, rows=sent.sub_batch.batch.num_rows)
        if rows:
            joined = rows[0] if len(rows) == 1 else pa.concat_batches(rows)
            writer.write_with_metadata(joined, message.SerializeToString())
        elif message.opens or message.closes:
            writer.write_metadata(message.SerializeToString())

    def _end(self, writer: fl.FlightStreamWriter | None, reader: threading.Thread | None) -> SmqError | None:
        """Ends the stream. Returns the error that ended it, or None."""
        error: SmqError | None = None
        if self._channel is None:
            return None
        if not self._closing:
            self.abort()
        if writer is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                writer.done_writing()
            if reader is not None:
                reader.join(UNRESPONSIVE_AFTER_SECONDS)
                if reader.is_alive():
                    self.abort()
                    reader.join()
            try:
                # Only after the reader has ended, because closing while another thread reads hangs.
                writer.close()
            except (pa.ArrowException, OSError) as failure:
                error = from_flight(failure)
        self._channel.close()
        return error

    def _fail_sessions(self, failure: SmqError | None) -> None:
        """Every session learns that the stream has ended, and its sender opens another one."""
        with self._wake:
            self._broken = True
        sessions = []
        while self._sessions:
            sessions.append(self._sessions.popitem()[1])
        # An older broker takes the first message of a shared stream for a mistake. It has streams for each segment.
        is_unsupported = isinstance(failure, InvalidRequest) and not self._has_answered
        self._on_ended(self, is_unsupported)
        for session in sessions:
            session.finish(None if is_unsupported else failure, as_planned=is_unsupported)

    # ---- the reader's thread

    def _read(self, metadata: fl.FlightMetadataReader) -> None:
        try:
            # None is the end, or an error that only a write or close reports.
            while (body := metadata.read()) is not None:
                self._last_reply_at = time.monotonic()
                self._handle(parse(pb.SharedReply, body))
        except (pa.ArrowException, OSError, SmqError) as error:
            log.debug("the stream to %s broke: %s", self.primary.broker, error)
        except Exception:
            log.exception("a reply of %s could not be handled", self.primary.broker)
        finally:
            with self._wake:
                self._broken = True
                self._wake.notify()

    def _handle(self, reply: pb.SharedReply) -> None:
        if reply.HasField("error"):
            self._error = error_from_pb(reply.error)
            return
        self._has_answered = True
        for one in reply.sessions:
            session = self._sessions.get(one.session)
            if session is None:
                continue  # it was closed here meanwhile
            session.deliver(one.reply)
            if one.reply.WhichOneof("reply") in ("sealed", "error") and self._remove(session):
                session.finish(None, as_planned=one.reply.HasField("sealed"))
