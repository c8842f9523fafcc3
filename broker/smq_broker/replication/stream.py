"""A primary's Flight stream to a follower: how it is opened, answered and ended. Subclasses decide what to send.

Two threads serve it: one sends, the other reads the follower's replies. Each stream has its own connection, so that a
hanging one can be closed without effect on others.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from smq_broker.runtime.lock_order import BrokerLock
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_core.errors import SmqError, Unavailable
from smq_core.model.entities import Replica
from smq_proto.channel_options import NO_PROXY
from smq_proto.flight import from_flight
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import make_lock, requires_lock

HEARTBEAT_SECONDS = 1.0
# A new watermark or chain end waits this time for entries that take it along; then it is sent alone.
UPDATE_DELAY_SECONDS = 0.02
UNRESPONSIVE_AFTER_SECONDS = 0.5
# How long what is small waits at most for the answer to the last message. A follower that is slow to answer would not
# answer a second message sooner.
MAX_HOLD_SECONDS = 0.02
INITIAL_BACKOFF_SECONDS = 0.02
MAX_BACKOFF_SECONDS = 0.5

# Only the transport can end a write to a peer that has stopped reading. It sends a ping each second and closes the
# connection if the peer does not answer for a second. The peer tolerates frequent pings because it sends data too: its
# replies to our heartbeats.
CONNECTION = [
    NO_PROXY,
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 1000),
    ("grpc.http2.ping_timeout_ms", 1000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 500),
]

# Makes a Flight client of an address.
ConnectFlight = Callable[[str], Any]


def connect(address: str) -> Any:
    return fl.connect(f"grpc://{address}", generic_options=CONNECTION)


class StreamEnded(Unavailable):
    """The stream ended without an error; closing it may return one."""


class ReplicationStream(ABC):
    """One stream at a time to one follower. A message counts as unanswered until the follower's reply to it."""

    def __init__(
        self, follower: Replica, subject: str, threads: ThreadSupervisor, connect_flight: ConnectFlight
    ) -> None:
        self._follower = follower
        self._subject = subject
        self._threads = threads
        self._connect_flight = connect_flight
        self._writing = make_lock(BrokerLock.WRITING)
        """Held while a message is taken and written."""
        self._writer: Any = None
        self._write_error: BaseException | None = None
        self._stream_error: SmqError | None = None
        self._sent_at = 0.0
        self._counting = make_lock()
        """Held for a moment while a message or a reply is counted: the threads that do so see both counts."""
        self._sent = 0
        self._answered = 0
        self._unanswered_since: float | None = None

    def unresponsive(self) -> bool:
        """True if a request to the follower has been unanswered for at least 500 ms."""
        unanswered_since = self._unanswered_since
        return unanswered_since is not None and time.monotonic() - unanswered_since > UNRESPONSIVE_AFTER_SECONDS

    def can_send_now(self) -> bool:
        """Whether a small message can be written without blocking, because the transport has room for it."""
        return self._writer is not None and bool(self._answered) and self._sent == self._answered

    # ---- what subclasses say

    @abstractmethod
    def _hello(self) -> pb.PutOpen: ...

    @abstractmethod
    def _schema(self) -> pa.Schema: ...

    @abstractmethod
    def _send_loop(self) -> None:
        """Sends until the stream has to end. Raises SmqError, or what a write raises."""

    @abstractmethod
    def _handle(self, body: bytes) -> None:
        """Handles a reply. Raises the follower's error, which ends the stream."""

    @abstractmethod
    def _is_wanted(self) -> bool:
        """Whether there may still be something to send."""

    @abstractmethod
    def _wake_sender(self) -> None:
        """Lets the sending thread look at ``_stream_error``."""

    # ---- the life of a stream

    def _run_stream(self) -> None:
        """Runs one stream until it breaks (raises SmqError) or the send loop returns."""
        self._stream_error = self._write_error = None
        self._sent, self._answered = 1, 0
        self._unanswered_since = self._unanswered_since or time.monotonic()
        client = self._connect_flight(self._follower.address)
        descriptor = fl.FlightDescriptor.for_command(self._hello().SerializeToString())
        # This thread exists before the stream does, so that no stream is left without it.
        opened: queue.SimpleQueue[Any] = queue.SimpleQueue()
        replies = self._threads.start(self._replies_task(opened.get))
        try:
            writer, reader = client.do_put(descriptor, self._schema())
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
        planned = self._stream_error is None or not self._is_wanted()
        self._stop_writing()
        self._finish(writer, replies)
        if self._stream_error is not None and not (planned and isinstance(self._stream_error, StreamEnded)):
            raise self._stream_error

    @requires_lock("_writing")
    def _count_sent(self) -> None:
        """Notes that a message is being sent."""
        self._sent_at = time.monotonic()
        with self._counting:
            if self._sent == self._answered:
                self._unanswered_since = self._sent_at
            self._sent += 1

    def _count_answer(self) -> bool:
        """Notes that a reply has come. True if it is the stream's first."""
        with self._counting:
            self._answered += 1
            self._unanswered_since = None if self._answered >= self._sent else time.monotonic()
            return self._answered == 1

    def _raise_write_error(self) -> None:
        """Raises what a write in another thread has raised."""
        if self._write_error is not None:
            raise self._write_error

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
            if self._stream_error is None or isinstance(self._stream_error, StreamEnded):
                self._stream_error = from_flight(error)

    def _close_reason(self, writer: Any, error: BaseException) -> SmqError:
        """Why a write failed: the error that the follower sent, or the one that closing the stream returns."""
        if self._stream_error is not None and not isinstance(self._stream_error, StreamEnded):
            return self._stream_error
        try:
            writer.close()
        except (pa.ArrowException, OSError) as reason:
            return from_flight(reason)
        return from_flight(error)

    # ---- the reading thread

    def _replies_task(self, opened: Callable[[], Any]) -> Task:
        """Reads the replies of the stream that ``opened`` waits for. If this dies, the stream fails and is reopened."""
        fail = partial(self._fail_stream, Unavailable("the thread that reads the follower's replies died"))
        return Task("replies", lambda: self._read_replies(opened()), self._subject, on_death=fail, restarts=False)

    def _read_replies(self, reader: Any) -> None:
        """``reader`` is None if the stream could not be opened."""
        if reader is None:
            return
        try:
            while (body := reader.read()) is not None:
                self._handle(body)
            self._fail_stream(StreamEnded("the follower ended the stream"))
        except SmqError as error:
            self._fail_stream(error)
        except (pa.ArrowException, OSError) as error:
            self._fail_stream(from_flight(error))

    def _fail_stream(self, error: SmqError) -> None:
        self._stream_error = self._stream_error or error
        self._wake_sender()
