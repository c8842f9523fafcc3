"""One lane of a connection to a follower: a Flight stream with frames going out and replies coming in.

One thread opens it and ends it, another reads the replies. Each lane has its own connection of the transport, so that
one that hangs can be closed without effect on others.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_core.errors import SmqError, Unavailable
from smq_proto.channel_options import NO_PROXY
from smq_proto.error_conversion import error_from_pb
from smq_proto.flight import from_flight, parse
from smq_proto.v1 import data_pb2 as pb

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

# Makes a Flight client of the address of a broker and its incarnation.
ConnectFlight = Callable[[str, str], Any]


class LaneEnded(Unavailable):
    """The stream ended without an error; closing it may return one."""


class LaneStream:
    """``open`` it, and ``end`` it in the same thread. ``write`` from one thread at a time.

    The thread that reads calls ``on_reply`` for each reply, and ``on_end`` when there are no more.
    """

    def __init__(
        self,
        subject: str,
        threads: ThreadSupervisor,
        on_reply: Callable[[pb.ReplicationFrameReply], None],
        on_end: Callable[[SmqError], None],
    ) -> None:
        self._subject = subject
        self._threads = threads
        self._on_reply = on_reply
        self._on_end = on_end
        self._writer: Any = None
        self._reader: threading.Thread | None = None
        self._frames = 0

    def open(self, client: Any, hello: pb.PutOpen, schema: pa.Schema) -> None:
        """Raises SmqError. The follower's first reply says that it serves this lane."""
        descriptor = fl.FlightDescriptor.for_command(hello.SerializeToString())
        # This thread exists before the stream does, so that no stream is left without it.
        opened: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reader = self._threads.start(self._replies_task(opened.get))
        try:
            self._writer, reader = client.do_put(descriptor, schema)
        except BaseException as error:
            opened.put(None)
            if isinstance(error, (pa.ArrowException, OSError)):
                raise from_flight(error) from error
            raise
        opened.put(reader)

    def write(self, frame: pb.ReplicationFrame, rows: pa.RecordBatch | None = None) -> None:
        """Raises SmqError if the stream is broken. Blocks while the transport has no room."""
        self._frames += 1
        frame.number = self._frames
        try:
            if rows is None:
                self._writer.write_metadata(frame.SerializeToString())
            else:
                self._writer.write_with_metadata(rows, frame.SerializeToString())
        except (pa.ArrowException, OSError) as error:
            raise from_flight(error) from error

    def end(self) -> SmqError | None:
        """Ends the stream. Returns the error that the follower has ended it with, if any. Nobody may write any more."""
        writer, self._writer = self._writer, None
        if writer is None or self._reader is None:
            return None
        error: SmqError | None = None
        try:
            writer.done_writing()
        except (pa.ArrowException, OSError) as failure:
            error = from_flight(failure)
        self._reader.join()
        try:
            # Only after the reader has ended, because closing a writer while its replies are read would hang.
            writer.close()
        except (pa.ArrowException, OSError) as failure:
            error = from_flight(failure)
        return error

    # ---- the reading thread

    def _replies_task(self, opened: Callable[[], Any]) -> Task:
        """Reads the replies of the stream that ``opened`` waits for. If this dies, the connection is opened again."""
        fail = partial(self._on_end, Unavailable("the thread that reads the follower's replies died"))
        return Task(
            kind="replies", run=lambda: self._read(opened()), subject=self._subject, on_death=fail, restarts=False
        )

    def _read(self, reader: Any) -> None:
        """``reader`` is None if the stream could not be opened."""
        if reader is None:
            return
        try:
            while (body := reader.read()) is not None:
                reply = parse(pb.ReplicationFrameReply, body)
                if reply.HasField("error"):
                    raise error_from_pb(reply.error)
                self._on_reply(reply)
            self._on_end(LaneEnded("the follower ended the stream"))
        except SmqError as error:
            self._on_end(error)
        except (pa.ArrowException, OSError) as error:
            self._on_end(from_flight(error))
