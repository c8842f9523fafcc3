"""One lane to a broker: a Flight stream that all producers of a client share, for one topic and schema version.

On the small lane, what is ready at one moment goes out as one frame, so the cost of a frame is shared, too. A frame of
few bytes is written by the thread that made it ready, if nothing is unacked and no quota is used up: then the transport
has room for it, and the write cannot block. Otherwise the lane's own thread writes. Another one reads the replies
(docs/threads.md).

On the bulk lane sessions take turns, with one batch in a frame. Only its own thread writes, because a write blocks
until the broker has read most of it. It waits for no acks.
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

from smq.lock_order import ClientLock
from smq.producing.batching.partitioning import SubBatch
from smq.producing.batching.row_batch import RowBatch, encode_together
from smq.producing.batching.small_batch import add_small_batch
from smq.producing.lanes.session import ProducerSession, SessionOwner
from smq.producing.runtime.timers import SLACK_SECONDS, Timers
from smq.producing.uploads.uploaded_rows import UploadedRows
from smq.transport.dialer import Dialer
from smq.transport.flight_channel import FlightChannel
from smq_core.errors import GrantMissing, PermissionDenied, SmqError, Unauthenticated
from smq_core.model.entities import SECOND, Replica, Segment
from smq_core.producing.segment_sender import NoBatch
from smq_core.producing.send_queue import SentSubBatch
from smq_proto.error_conversion import error_from_pb
from smq_proto.flight import flight_errors, from_flight, parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, reference_to_pb
from smq_storage.process.locks import make_lock, make_rlock, requires_lock, requires_no_lock

log = logging.getLogger(__name__)

# Of the small lane.
MAX_FRAME_BYTES = 256 << 10
# How many batches of one session go into it, so that each session gets its turn.
MAX_BATCHES_PER_FRAME = 16
# A frame up to this size is written at once. The transport takes 64 KiB that the broker has not read.
MAX_DIRECT_BYTES = 32 << 10

# How long a small frame waits at most for the acks of the one before. Meanwhile it takes in more batches. So the slower
# a broker is, the fewer and larger frames it gets. It waits no longer, because one segment alone may ack late.
MAX_HOLD_SECONDS = 0.02

# The time without a reply after which the lane is cut; heartbeats count as replies.
UNRESPONSIVE_AFTER_SECONDS = 2.0

# How long a lane that ends waits for the broker's last replies.
END_TIMEOUT_SECONDS = 2.0

# How often a program is warned that a quota slows it down.
THROTTLE_WARNING_SECONDS = 60.0

# Errors that are about the client, whichever session has met them.
_DENIALS = (GrantMissing.code, PermissionDenied.code, Unauthenticated.code)


class ProducerLane:
    """``start`` it after its first session was added. ``on_ended`` is called before the sessions learn of the end."""

    def __init__(
        self,
        primary: Replica,
        *,
        topic: str,
        uid: str,
        schema: pa.Schema,
        dialer: Dialer,
        timers: Timers,
        on_ended: Callable[[ProducerLane], None],
        is_bulk: bool,
    ) -> None:
        self.primary = primary
        self._topic = topic
        self._uid = uid
        self._schema = schema
        self._dialer = dialer
        self._timers = timers
        self._on_ended = on_ended
        self._is_bulk = is_bulk
        self._writing = make_lock(ClientLock.WRITING)
        """Held while a frame is put together and written."""
        self._writer: fl.FlightStreamWriter | None = None
        self._lock = make_rlock(ClientLock.STREAM)
        """For ``with``, which runs Python code if it gets the condition itself."""
        self._wake = threading.Condition(self._lock)
        self._numbers = itertools.count(1)
        self._sessions: dict[int, ProducerSession] = {}
        self._ready: list[ProducerSession] = []
        self._unacked: dict[int, int] = {}
        """Sessions of the last small frame without a reply, and the last sequence of each; -1 if it only opened."""
        self._sent_at = 0.0
        self._used_at = time.monotonic()
        self._hold_ends = False
        """Whether the timers will end the hold."""
        self._closing = False
        self._broken = False
        self._channel: FlightChannel | None = None
        self._error: SmqError | None = None
        """Why the broker has ended the lane."""
        self._last_reply_at = time.monotonic()
        self._is_throttled = False
        """Whether the broker reads nothing for a while, because a quota is used up."""
        self._throttle_warned_at = float("-inf")
        name = f"smq-bulk-sender-{primary.broker}" if is_bulk else f"smq-sender-{primary.broker}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add_session(
        self, segment: Segment, hello: pb.ProducerHello, owner: SessionOwner, owned_as: int
    ) -> ProducerSession | None:
        """None if this lane has ended. The caller holds the producer's lock."""
        with self._lock:
            if self._closing or self._broken:
                return None
            number = next(self._numbers)
            opening = pb.ProducerFrame.Open(session=number, segment=segment.name, producer=hello)
            session = ProducerSession(
                number, segment=segment, hello=opening, owner=owner, owned_as=owned_as, mark_ready=self._mark_ready
            )
            self._sessions[number] = session
        self._mark_ready(session)
        return session

    def is_unresponsive(self, now: float) -> bool:
        return self._channel is not None and now - self._last_reply_at > UNRESPONSIVE_AFTER_SECONDS

    def is_unused(self, now: float, seconds: float) -> bool:
        """Whether there was nothing to do for that time. On the small lane that is so only without sessions."""
        sessions = list(self._sessions.values())
        if sessions and not (self._is_bulk and all(session.is_idle for session in sessions)):
            return False
        return now - self._used_at >= seconds

    @property
    def is_outdated(self) -> bool:
        """Whether the lane should be replaced, because the certificate of its connection was."""
        return self._channel is not None and self._dialer.is_outdated(self._channel.client)

    def abort(self) -> None:
        """Cuts the connection, even while threads use it. Repeatable."""
        channel = self._channel
        if channel is not None:
            channel.abort()

    def close(self) -> None:
        """Ends the lane after what is ready was sent. Repeatable; ``join`` waits for it."""
        with self._lock:
            self._closing = True
            self._wake.notify()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _mark_ready(self, session: ProducerSession) -> None:
        with self._lock:
            if session.is_ready:
                return
            session.is_ready = True
            self._ready.append(session)
            if self._unacked:
                self._plan_end_of_hold()
            elif len(self._ready) == 1 and (self._is_bulk or not self._timers.call_after(self._send_now)):
                self._wake.notify()

    @requires_lock("_lock")
    def _plan_end_of_hold(self) -> None:
        if not self._hold_ends:
            self._hold_ends = True
            self._timers.call_at(self._sent_at + MAX_HOLD_SECONDS, self._end_hold)

    def _end_hold(self) -> None:
        """What is ready has waited long enough for acks."""
        with self._lock:
            self._hold_ends = False
            if not self._ready or not self._unacked:
                return
            if time.monotonic() < self._sent_at + MAX_HOLD_SECONDS - SLACK_SECONDS:
                self._plan_end_of_hold()  # they came, and those of the next frame did not
            else:
                self._unacked.clear()
                self._wake.notify()

    def _remove(self, session: ProducerSession) -> bool:
        """False if somebody else has removed it, and lets it finish. Nothing waits for its acks any more."""
        with self._lock:
            self._used_at = time.monotonic()
            self._unacked.pop(session.number, None)
            if self._ready and not self._unacked:
                self._wake.notify()
        return self._sessions.pop(session.number, None) is not None

    @requires_no_lock
    def _send_now(self) -> None:
        """Sends a small frame in this thread, or leaves it to the lane's own."""
        if not self._writing.acquire(blocking=False):
            return  # who holds it looks for more afterwards
        finished: list[ProducerSession] = []
        try:
            with self._lock:
                can_write = self._writer is not None and not self._unacked and not self._is_throttled
                ready = self._take_ready() if can_write else []
                if not ready:
                    self._wake.notify()
            if ready:
                finished = self._send(ready, MAX_DIRECT_BYTES)
        except SmqError as error:
            log.debug("write to %s failed: %s", self.primary.broker, error.message)
            self._break()
        except Exception:
            log.exception("a frame to %s could not be sent", self.primary.broker)
            self._break()
        finally:
            self._writing.release()
            with self._lock:
                if self._broken or self._ready:
                    self._wake.notify()
        for session in finished:
            session.finish(None, is_planned=True)

    def _break(self) -> None:
        """Lets the lane's own thread end it: what was taken but not written is sent again on the next one."""
        with self._lock:
            self._broken = True

    @requires_lock("_lock")
    def _take_ready(self) -> list[ProducerSession]:
        """The sessions that may share the next frame."""
        count = 1 if self._is_bulk else len(self._ready)
        ready, self._ready = self._ready[:count], self._ready[count:]
        for session in ready:
            session.is_ready = False
        return ready

    # ---- the lane's own thread

    def _run(self) -> None:
        failure: SmqError | None = None
        reader: threading.Thread | None = None
        try:
            channel = FlightChannel.open(self.primary, self._dialer)
            self._present_grants(channel)
            self._last_reply_at = time.monotonic()
            self._channel = channel
            hello = pb.PutOpen(
                protocol=PROTOCOL,
                incarnation=self.primary.incarnation,
                uid=self._uid,
                producers=pb.ProducersHello(lane=pb.LANE_BULK if self._is_bulk else pb.LANE_SMALL),
            )
            descriptor = fl.FlightDescriptor.for_command(hello.SerializeToString())
            with flight_errors():
                self._writer, metadata = channel.client.do_put(descriptor, self._schema)
            reader = threading.Thread(
                target=self._read, args=(metadata,), name=f"smq-replies-{self.primary.broker}", daemon=True
            )
            reader.start()
            self._send_loop()
        except SmqError as error:
            failure = error
        except Exception as error:
            log.exception("the lane to %s failed", self.primary.broker)
            failure = from_flight(error)
        failure = self._end(reader) or failure
        failure = self._error or failure
        is_planned = self._closing and failure is None
        if failure is not None and self._channel is not None:
            # Grants and certificates end. If there are new ones, the sessions go on in another lane.
            failure = self._dialer.recover(failure, self._channel.client, self._topic)
            is_planned = failure is None
        self._fail_sessions(failure, is_planned=is_planned)

    def _present_grants(self, channel: FlightChannel) -> None:
        try:
            self._dialer.present(channel.client, self._topic)
        except BaseException:
            channel.close()
            raise

    def _send_loop(self) -> None:
        """Sends until the lane breaks or is closed. Raises SmqError if a write fails."""
        while True:
            with self._lock:
                self._wait_until_ready()
                if self._broken or not self._ready:
                    return
            with self._writing:
                with self._lock:
                    ready = self._take_ready()
                finished = self._send(ready, MAX_FRAME_BYTES)
            for session in finished:
                session.finish(None, is_planned=True)

    @requires_lock("_lock")
    def _wait_until_ready(self) -> None:
        """Waits until a frame should be sent, or the lane ends."""
        while not self._closing and not self._broken and (self._unacked or not self._ready):
            self._wake.wait()

    @requires_lock("_writing")
    def _send(self, ready: list[ProducerSession], max_bytes: int) -> list[ProducerSession]:
        """Sends one frame with what these sessions have. Returns those that end with it."""
        frame = pb.ProducerFrame()
        max_batches = 1 if self._is_bulk else MAX_BATCHES_PER_FRAME
        batches: list[tuple[ProducerSession, SentSubBatch]] = []
        finished: list[ProducerSession] = []
        left = max_bytes
        for session in ready:
            if self._sessions.get(session.number) is not session:
                continue
            if left <= 0:
                self._mark_ready(session)
                continue
            if not session.is_announced:
                session.is_announced = True
                frame.opens.append(session.hello)
            taken, reason = session.take_batches(left, max_batches)
            for sent in taken:
                assert isinstance(sent.sub_batch, SubBatch)
                left -= sent.sub_batch.cost
                batches.append((session, sent))
            if reason is None:
                self._mark_ready(session)
            elif reason is not NoBatch.WAIT:
                frame.closes.append(session.number)
                finished.append(session)
        with flight_errors():
            self._write(frame, batches)
        return [session for session in finished if self._remove(session)]

    @requires_lock("_writing")
    def _write(self, frame: pb.ProducerFrame, batches: list[tuple[ProducerSession, SentSubBatch]]) -> None:
        writer = self._writer
        assert writer is not None
        # The broker appends neighbours of one segment together.
        batches.sort(key=lambda item: item[0].segment.name)
        rows = [it for session, sent in batches if (it := _add_sub_batch(frame, session.number, sent)) is not None]
        with self._lock:
            self._sent_at = self._used_at = time.monotonic()
            if not self._is_bulk:
                self._unacked.update({it.session: -1 for it in frame.opens})
                self._unacked.update({session.number: sent.sequence for session, sent in batches})
            if self._ready and self._unacked:
                self._plan_end_of_hold()  # of what did not fit into this frame
        if not rows:
            if frame.opens or frame.closes or frame.sub_batches:
                writer.write_metadata(frame.SerializeToString())
        elif add_small_batch(frame, rows):
            writer.write_metadata(frame.SerializeToString())
        else:
            writer.write_with_metadata(encode_together(rows), frame.SerializeToString())

    def _end(self, reader: threading.Thread | None) -> SmqError | None:
        """Ends the Flight stream. Returns the error that ended it, or None."""
        error: SmqError | None = None
        if self._channel is None:
            return None
        if not self._closing:
            self.abort()
        with self._writing:
            writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                writer.done_writing()
            if reader is not None:
                reader.join(END_TIMEOUT_SECONDS)
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

    def _fail_sessions(self, failure: SmqError | None, *, is_planned: bool) -> None:
        """Every session learns that the lane has ended. Its sender opens another one when it has something to send."""
        with self._lock:
            self._broken = True
        sessions = []
        while self._sessions:
            sessions.append(self._sessions.popitem()[1])
        self._on_ended(self)
        for session in sessions:
            session.finish(failure, is_planned=is_planned)

    # ---- the reader's thread

    def _read(self, metadata: fl.FlightMetadataReader) -> None:
        try:
            # None is the end, or an error that only a write or close reports.
            while (body := metadata.read()) is not None:
                self._last_reply_at = time.monotonic()
                self._handle(parse(pb.ProducerFrameReply, body))
        except (pa.ArrowException, OSError, SmqError) as error:
            log.debug("the lane to %s broke: %s", self.primary.broker, error)
        except Exception:
            log.exception("a reply of %s could not be handled", self.primary.broker)
        finally:
            with self._lock:
                self._broken = True
                self._wake.notify()

    def _forget_acked(self, one: pb.ProducerFrameReply.Session) -> None:
        """Lets the next small frame go when the last one is acked as a whole."""
        with self._lock:
            last = self._unacked.get(one.session)
            if last is None:
                return
            acks = one.reply.acks
            if not one.reply.HasField("acks") or acks.first_sequence + len(acks.first_offsets) > last:
                del self._unacked[one.session]
            may_send = not self._unacked and bool(self._ready)
        if may_send:
            self._send_now()

    def _handle(self, reply: pb.ProducerFrameReply) -> None:
        if reply.HasField("error"):
            self._error = error_from_pb(reply.error)
            return
        self._is_throttled = reply.throttled > 0
        if self._is_throttled and self._last_reply_at >= self._throttle_warned_at + THROTTLE_WARNING_SECONDS:
            self._throttle_warned_at = self._last_reply_at
            log.warning(
                "what this client writes to %s at %s waits %.1f s now, because its identity has used up its quota: "
                "write less, or raise spec.quotas of the topic",
                self._topic,
                self.primary.broker,
                reply.throttled / SECOND,
            )
        for one in reply.sessions:
            if one.reply.HasField("error") and one.reply.error.code in _DENIALS:
                self._error = error_from_pb(one.reply.error)  # of this client, so of all of its sessions
                with self._lock:
                    self._broken = True
                    self._wake.notify()
                return
            session = self._sessions.get(one.session)
            if session is None:
                continue  # it was closed here meanwhile
            session.deliver(one.reply)
            self._forget_acked(one)
            if one.reply.WhichOneof("reply") in ("sealed", "error") and self._remove(session):
                session.finish(None, is_planned=one.reply.HasField("sealed"))


def _add_sub_batch(frame: pb.ProducerFrame, session: int, sent: SentSubBatch) -> pa.RecordBatch | RowBatch | None:
    """Adds a sub-batch to the frame. Returns its rows, unless they are in an upload."""
    sub_batch = sent.sub_batch
    assert isinstance(sub_batch, SubBatch)
    added = frame.sub_batches.add(session=session, sequence=sent.sequence, rejections=sent.rejections)
    if isinstance(sub_batch.batch, UploadedRows):
        added.reference.CopyFrom(reference_to_pb(sub_batch.batch.reference()))
        return None
    added.rows = sub_batch.batch.num_rows
    if sub_batch.large_value is not None:
        added.large_values.append(sub_batch.large_value.value.name)
    return sub_batch.batch
