"""From a primary to one follower: one Flight stream, which is reopened when it breaks, until the segment is fenced.

Each link has two threads: one sends pending entries, the other reads the follower's replies. Small batches are sent by
the thread that has appended them if no message is unanswered, because the transport has room then. Otherwise they wait
for the answer, and go out as one message: a slow follower gets fewer and larger ones. Each link has its own connection,
so that a hanging one can be closed without effect on others.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_broker.segments.batches import MAX_MESSAGE_BYTES
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.journaling import is_journal_behind, write_message, write_missing
from smq_broker.segments.payloads import rows_as_batch
from smq_broker.segments.replication_messages import encode_header
from smq_core.errors import NotHosted, SegmentSealed, SmqError, Unavailable, WrongIncarnation
from smq_core.model.entities import Replica
from smq_core.replica.log_entries import ReplicationMessage
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.flight import from_flight, parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, error_from_pb

HEARTBEAT = 1.0
UPDATE_DELAY_SECONDS = 0.02
UNRESPONSIVE_AFTER_SECONDS = 0.5
HOLD_BELOW_BYTES = 64 << 10
"""While a message is unanswered, fewer bytes than these wait for the answer, but at most so long:"""
MAX_HOLD_SECONDS = 0.02
"""A follower that is slow to answer would not answer a second message sooner."""
INITIAL_BACKOFF_SECONDS = 0.02
MAX_BACKOFF_SECONDS = 0.5

# Only the transport can end a write to a peer that has stopped reading. It sends a ping each second and closes the
# connection if the peer does not answer for a second. The peer tolerates frequent pings because it sends data too: its
# replies to our heartbeats.
CONNECTION = [
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 1000),
    ("grpc.http2.ping_timeout_ms", 1000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 500),
]


def connect(address: str) -> Any:
    return fl.connect(f"grpc://{address}", generic_options=CONNECTION)


class FollowerLink:
    """Replicates one segment to one follower. ``on_fenced`` is called when the follower replies that it is fenced.

    The link to the first follower writes the primary's own journal, too.

    ``connect_flight`` makes a Flight client of an address.
    """

    def __init__(
        self,
        hosted: HostedSegment,
        follower: Replica,
        on_fenced: Callable[[HostedSegment], None],
        threads: ThreadSupervisor,
        connect_flight: Callable[[str], Any] = connect,
    ) -> None:
        self._hosted = hosted
        self._follower = follower
        self._on_fenced = on_fenced
        self._threads = threads
        self._connect_flight = connect_flight
        self._journals = hosted.segment.replicas[1] == follower
        self._log = hosted.log.bind(follower=follower.broker)
        self._stream_error: SmqError | None = None
        self._follower_fenced = False
        self._writing = threading.Lock()
        """Held while a message is taken and written; always taken before the segment's lock."""
        self._writer: Any = None
        self._write_error: BaseException | None = None
        self._sent_at = 0.0
        self._sent = 0
        self._answered = 0
        self._update_due_at: float | None = None
        self._credit = 0
        self._takes_references: bool | None = None
        self.idle = False
        self._unanswered_since: float | None = None

    @property
    def incarnation(self) -> str:
        return self._follower.incarnation

    @property
    def takes_references(self) -> bool | None:
        """Whether the follower takes entries with references; None until it has answered."""
        return self._takes_references

    def unresponsive(self) -> bool:
        """True if a request to the follower has been unanswered for at least 500 ms."""
        unanswered_since = self._unanswered_since
        return unanswered_since is not None and time.monotonic() - unanswered_since > UNRESPONSIVE_AFTER_SECONDS

    # ---- called by whoever appends

    def can_send_now(self) -> bool:
        return self._writer is not None and bool(self._answered) and self._sent == self._answered

    def send_now(self) -> None:
        with self._writing:
            if self._writer is not None:
                try:
                    if self._send_next():
                        return
                except (pa.ArrowException, OSError) as error:
                    self._write_error = error
        with self._hosted.lock:
            # The stream has ended, or has to, or another message was sent meanwhile and this one waits for its answer.
            self._hosted.replication_pending.notify_all()

    # ---- connecting

    def run(self) -> None:
        """Replicates until the segment is fenced. Blocks; run it in a thread."""
        pause = INITIAL_BACKOFF_SECONDS
        while not self._follower_fenced and self._hosted.machine.state in (ReplicaState.WAITING, ReplicaState.OPEN):
            began = time.monotonic()
            try:
                self._run_stream()
            except SegmentSealed:
                self._log.info("follower.fenced")
                self._follower_fenced = True
                break
            except SmqError as error:
                level = self._log.debug if isinstance(error, NotHosted) else self._log.warning
                level("follower.disconnected", error=error.message, code=error.code)
                if isinstance(error, WrongIncarnation):
                    pause = MAX_BACKOFF_SECONDS
                # NotHosted is an answer too: the follower has not opened the segment yet.
                answered = isinstance(error, NotHosted)
                self._unanswered_since = None if answered else self._unanswered_since or time.monotonic()
            finally:
                with self._hosted as machine:
                    machine.follower_disconnected(self.incarnation)
            if time.monotonic() - began > 2.0:
                pause = INITIAL_BACKOFF_SECONDS
            self._hosted.fenced.wait(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)
        if self._follower_fenced:
            self._on_fenced(self._hosted)

    def _run_stream(self) -> None:
        """Runs one stream until it breaks (raises SmqError) or the segment is fenced."""
        self._stream_error = self._write_error = None
        self._sent, self._answered = 1, 0
        self._unanswered_since = self._unanswered_since or time.monotonic()
        client = self._connect_flight(self._follower.address)
        hello = pb.PutOpen(
            protocol=PROTOCOL,
            segment=self._hosted.name,
            incarnation=self.incarnation,
            replica=pb.ReplicaHello(primary_incarnation=self._hosted.incarnation),
            uid=self._hosted.topic.uid,
        )
        descriptor = fl.FlightDescriptor.for_command(hello.SerializeToString())
        # This thread exists before the stream does, so that no stream is left without it.
        opened: queue.SimpleQueue[Any] = queue.SimpleQueue()
        replies = self._threads.start(self._replies_task(opened.get))
        try:
            writer, reader = client.do_put(descriptor, self._hosted.wire.message)
        except BaseException as error:
            opened.put(None)
            if isinstance(error, (pa.ArrowException, OSError)):
                raise from_flight(error) from error
            raise
        opened.put(reader)
        self._writer = writer
        try:
            self._send_loop()
        except (pa.ArrowException, OSError) as error:
            self._stop_writing()
            replies.join()
            raise self._close_reason(writer, error) from error
        except BaseException:
            self._stop_writing()
            self._finish(writer, replies)
            raise
        else:
            self._stop_writing()
            self._finish(writer, replies)
        if self._stream_error is not None and not (
            isinstance(self._stream_error, _StreamEnded) and self._hosted.fenced.is_set()
        ):
            raise self._stream_error

    def _stop_writing(self) -> None:
        with self._writing:
            self._writer = None

    def _finish(self, writer: Any, replies: threading.Thread) -> None:
        """Ends the stream in this order, because closing a writer while its replies are read would hang."""
        try:
            writer.done_writing()
            replies.join()
            writer.close()
        except (pa.ArrowException, OSError) as error:
            if self._stream_error is None or isinstance(self._stream_error, _StreamEnded):
                self._stream_error = from_flight(error)

    def _close_reason(self, writer: Any, error: BaseException) -> SmqError:
        """Why a write failed: the error that the follower sent, or the one that closing the stream returns."""
        if self._stream_error is not None and not isinstance(self._stream_error, _StreamEnded):
            return self._stream_error
        try:
            writer.close()
        except (pa.ArrowException, OSError) as reason:
            return from_flight(reason)
        return from_flight(error)

    # ---- the writing thread

    def _send_loop(self) -> None:
        hosted = self._hosted
        while True:
            with self._writing:
                if self._write_error is not None:
                    raise self._write_error
                if self._send_next():
                    continue
            with hosted.lock:
                if self._stream_error is not None or hosted.machine.state not in (
                    ReplicaState.WAITING,
                    ReplicaState.OPEN,
                ):
                    return
                behind = self._journals and is_journal_behind(hosted) and self._sent == self._answered
                heartbeat = None if behind else self._wait_for_message()
            if behind:
                write_missing(hosted)
            elif heartbeat is not None:
                with self._writing:
                    self._send(heartbeat)

    def _send_next(self) -> bool:
        """Sends the next message if one is due. The caller holds ``_writing``."""
        with self._hosted.lock:
            message = self._next_message()
        if message is None:
            return False
        self._send(message)
        return True

    def _send(self, message: ReplicationMessage) -> None:
        """Sends a message. The journal is written while the follower writes its own. The caller holds ``_writing``."""
        writer = self._writer
        self._sent_at = time.monotonic()
        if self._sent == self._answered:
            self._unanswered_since = time.monotonic()
        self._sent += 1
        header = encode_header(message)
        if message.entries:
            rows = rows_as_batch(message.entries, self._hosted.wire.empty)
            writer.write_with_metadata(rows, header)
            if self._journals:
                write_message(self._hosted, message, header, rows)
        else:
            writer.write_metadata(header)

    def _next_message(self) -> ReplicationMessage | None:
        """The next message: entries at once, a new watermark alone 20 ms after the last message. Lock held."""
        machine = self._hosted.machine
        kind = machine.pending_replication(self.incarnation)
        now = time.monotonic()
        if kind == "entries":
            if self._hold_left(now) > 0:
                return None
            self._update_due_at = now + UPDATE_DELAY_SECONDS
        elif kind == "progress":
            self._update_due_at = self._update_due_at or now + UPDATE_DELAY_SECONDS
            if now < self._update_due_at:
                return None
            self._update_due_at = None
        else:
            if self._update_due_at is not None and now >= self._update_due_at:
                self._update_due_at = None
            return None
        return machine.replication_for(self.incarnation, max_bytes=MAX_MESSAGE_BYTES)

    def _hold_left(self, now: float) -> float:
        """For how many more seconds waiting entries wait for the answer to the last message. Lock held."""
        if self._sent == self._answered or self._hosted.machine.has_much_to_replicate(
            self.incarnation, HOLD_BELOW_BYTES
        ):
            return 0.0
        return self._sent_at + MAX_HOLD_SECONDS - now

    def _wait_for_message(self) -> ReplicationMessage | None:
        """Waits until there may be something to send. Returns a heartbeat after a second without. Lock held.

        While an update is due or entries are held, the wait ends by itself. Only an idle link has to be woken for a new
        watermark.
        """
        if self._hosted.machine.pending_replication(self.incarnation) == "entries":
            left = self._hold_left(time.monotonic())
            if left > 0:
                self._hosted.replication_pending.wait(left)
            return None
        if self._update_due_at is not None:
            self._hosted.replication_pending.wait(max(0.001, self._update_due_at - time.monotonic()))
            return None
        self.idle = True
        woken = self._hosted.replication_pending.wait(HEARTBEAT)
        self.idle = False
        if woken or not self._answered:
            return None
        machine = self._hosted.machine
        credit = machine.confirmed_credit(self.incarnation)
        return ReplicationMessage(0, (), machine.watermark, machine.chain_end, credit)

    # ---- the reading thread

    def _replies_task(self, opened: Callable[[], Any]) -> Task:
        """Reads the replies of the stream that ``opened`` waits for. If this dies, the stream fails and is reopened."""
        fail = partial(self._fail_stream, Unavailable("the thread that reads the follower's replies died"))
        subject = f"{self._hosted.name}-{self._follower.broker}"
        return Task("replies", lambda: self._read_replies(opened()), subject, on_death=fail, restarts=False)

    def _read_replies(self, reader: Any) -> None:
        """``reader`` is None if the stream could not be opened."""
        if reader is None:
            return
        try:
            while (body := reader.read()) is not None:
                self._handle_reply(parse(pb.ReplicationReply, body))
            self._fail_stream(_StreamEnded("the follower ended the stream"))
        except SmqError as error:
            self._fail_stream(error)
        except (pa.ArrowException, OSError) as error:
            self._fail_stream(from_flight(error))

    def _handle_reply(self, reply: pb.ReplicationReply) -> None:
        if reply.HasField("error"):
            raise error_from_pb(reply.error)
        first = not self._answered
        self._answered += 1
        held = self._sent == self._answered
        self._unanswered_since = None if self._answered >= self._sent else time.monotonic()
        with self._hosted as machine:
            if first:
                self._takes_references = reply.references
                machine.follower_connected(self.incarnation, reply.end, reply.credit)
                self._hosted.replication_pending.notify_all()
                self._hosted.capacity_freed.notify_all()
                self._log.info("follower.connected", end=reply.end, credit=reply.credit)
            else:
                if reply.credit and reply.credit != self._credit:
                    machine.follower_granted(self.incarnation, reply.credit)
                    self._hosted.capacity_freed.notify_all()
                machine.follower_acked(self.incarnation, reply.end)
            if held and machine.pending_replication(self.incarnation) == "entries":
                self._hosted.replication_pending.notify_all()
            self._credit = reply.credit or self._credit

    def _fail_stream(self, error: SmqError) -> None:
        with self._hosted.lock:
            if self._stream_error is None:
                self._stream_error = error
            self._hosted.replication_pending.notify_all()


class _StreamEnded(Unavailable):
    """The stream ended without an error; closing it may return one."""
