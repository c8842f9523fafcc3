"""From a primary to one follower: a stream for one segment, which is reopened when it breaks.

Small batches are sent by the thread that has appended them if no message is unanswered, because the transport has room
then. Otherwise they wait for the answer, and go out as one message: a slow follower gets fewer and larger ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa

from smq_broker.replication.link_state import LARGE_BYTES, LinkState
from smq_broker.replication.stream import (
    HEARTBEAT_SECONDS,
    INITIAL_BACKOFF_SECONDS,
    MAX_BACKOFF_SECONDS,
    MAX_HOLD_SECONDS,
    UPDATE_DELAY_SECONDS,
    ConnectFlight,
    ReplicationStream,
    connect,
)
from smq_broker.rows.batches import MAX_MESSAGE_BYTES
from smq_broker.rows.payloads import rows_as_batch
from smq_broker.rows.replication_messages import encode_header
from smq_broker.runtime.threads import ThreadSupervisor
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import NotHosted, SegmentSealed, SmqError, WrongIncarnation
from smq_core.replica.log_entries import ReplicationMessage
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from smq_storage.process.locks import requires_lock

# A segment without a large message for this time goes back to the shared stream.
QUIET_SECONDS = 10.0


class OwnReplicationStream(ReplicationStream):
    """``on_fenced`` is called when the follower replies that it is fenced."""

    def __init__(
        self,
        state: LinkState,
        on_fenced: Callable[[HostedSegment], None],
        threads: ThreadSupervisor,
        connect_flight: ConnectFlight = connect,
    ) -> None:
        super().__init__(state.follower, f"{state.hosted.name}-{state.follower.broker}", threads, connect_flight)
        self._state = state
        self._hosted = state.hosted
        self._on_fenced = on_fenced
        self._pending = threading.Condition(state.hosted.lock)
        """Notified when there is something to send."""
        self._update_due_at: float | None = None
        self._large_at = 0.0
        self.idle = False

    @property
    def incarnation(self) -> str:
        return self._state.incarnation

    # ---- called by whoever appends

    def notify(self, *, grown: bool, progressed: bool, sends_now: bool) -> None:
        """See ``ReplicationLink``.

        While an update is due or entries are held, the sending thread wakes by itself. Only an idle one has to be woken
        for a new watermark.
        """
        if (grown and not sends_now) or (progressed and self.idle):
            self._pending.notify_all()

    def send_now(self) -> None:
        with self._writing:
            if self._writer is not None:
                try:
                    if self._send_next():
                        return
                except (pa.ArrowException, OSError, SmqError) as error:
                    self._write_error = error
        # The stream has ended, or has to, or another message was sent meanwhile and this one waits for its answer.
        self._wake_sender()

    # ---- connecting

    def run(self) -> None:
        """Replicates until the segment is fenced, or until there were only small messages for a while. Blocks."""
        pause = INITIAL_BACKOFF_SECONDS
        self._large_at = time.monotonic()
        while self._state.is_wanted:
            began = time.monotonic()
            try:
                self._run_stream()
                if self._is_quiet():
                    return
            except SegmentSealed:
                self._state.log.info("follower.fenced")
                self._on_fenced(self._hosted)
                return
            except SmqError as error:
                level = self._state.log.debug if isinstance(error, NotHosted) else self._state.log.warning
                level("follower.disconnected", error=error.message, code=error.code)
                if isinstance(error, WrongIncarnation):
                    pause = MAX_BACKOFF_SECONDS
                # NotHosted is an answer too: the follower has not opened the segment yet.
                answered = isinstance(error, NotHosted)
                self._unanswered_since = None if answered else self._unanswered_since or time.monotonic()
            finally:
                self._state.disconnect()
            if time.monotonic() - began > 2.0:
                pause = INITIAL_BACKOFF_SECONDS
            self._hosted.fenced.wait(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)

    def _hello(self) -> pb.PutOpen:
        return pb.PutOpen(
            protocol=PROTOCOL,
            segment=self._hosted.name,
            incarnation=self.incarnation,
            replica=pb.ReplicaHello(primary_incarnation=self._hosted.incarnation),
            uid=self._hosted.topic.uid,
        )

    def _schema(self) -> pa.Schema:
        return self._hosted.wire.message

    def _is_wanted(self) -> bool:
        return self._state.is_wanted

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._large_at > QUIET_SECONDS

    @requires_lock("_hosted.lock")
    def _may_end(self) -> bool:
        """Whether nothing is lost if the stream ends now, because it is quiet."""
        return self._is_quiet() and self._sent == self._answered and not self._state.has_entries

    def _wake_sender(self) -> None:
        with self._hosted.lock:
            self._pending.notify_all()

    # ---- the writing thread

    def _send_loop(self) -> None:
        hosted = self._hosted
        while True:
            with self._writing:
                self._raise_write_error()
                if self._send_next():
                    continue
            with hosted.lock:
                if self._stream_error is not None or not self._state.is_wanted:
                    return
                if self._may_end():
                    return
                behind = self._sent == self._answered and self._state.is_journal_behind
                heartbeat = None if behind else self._wait_for_message()
                if heartbeat is not None and self._may_end():
                    return
            if behind:
                self._state.write_missing()
            elif heartbeat is not None:
                with self._writing:
                    self._send(heartbeat)

    @requires_lock("_writing")
    def _send_next(self) -> bool:
        """Sends the next message if one is due."""
        with self._hosted.lock:
            message = self._next_message()
        if message is None:
            return False
        self._send(message)
        return True

    @requires_lock("_writing")
    def _send(self, message: ReplicationMessage) -> None:
        """Sends a message. The journal is written while the follower writes its own."""
        writer = self._writer
        self._count_sent()
        header = encode_header(message)
        if message.entries:
            rows = rows_as_batch(message.entries, self._hosted.wire.empty)
            if rows.nbytes > LARGE_BYTES:
                self._large_at = self._sent_at
            writer.write_with_metadata(rows, header)
            self._state.write_journal(message, header, rows)
        else:
            writer.write_metadata(header)

    @requires_lock("_hosted.lock")
    def _next_message(self) -> ReplicationMessage | None:
        """The next message: entries at once, a new watermark alone 20 ms after the last message."""
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

    @requires_lock("_hosted.lock")
    def _hold_left(self, now: float) -> float:
        """For how many more seconds waiting entries wait for the answer to the last message."""
        if self._sent == self._answered or self._state.has_large_message:
            return 0.0
        return self._sent_at + MAX_HOLD_SECONDS - now

    @requires_lock("_hosted.lock")
    def _wait_for_message(self) -> ReplicationMessage | None:
        """Waits until there may be something to send. Returns a heartbeat after a second without."""
        if self._state.has_entries:
            left = self._hold_left(time.monotonic())
            if left > 0:
                self._pending.wait(left)
            return None
        if self._update_due_at is not None:
            self._pending.wait(max(0.001, self._update_due_at - time.monotonic()))
            return None
        self.idle = True
        woken = self._pending.wait(HEARTBEAT_SECONDS)
        self.idle = False
        if woken or not self._answered:
            return None
        return self._state.heartbeat()

    # ---- the reading thread

    def _handle(self, body: bytes) -> None:
        reply = parse(pb.ReplicationReply, body)
        first = not reply.HasField("error") and self._count_answer()
        self._state.apply(reply, first=first)
        with self._hosted.lock:
            if first or (self._sent == self._answered and self._state.has_entries):
                self._pending.notify_all()
