"""The shared streams of a client: one for each broker, topic and schema version that its producers write to."""

from __future__ import annotations

import time

import pyarrow as pa

from smq.lock_order import ClientLock
from smq.producing.runtime.timers import Timers
from smq.producing.streams.segment_sender import SegmentSender
from smq.producing.streams.shared_session import SessionOwner, SharedSession
from smq.producing.streams.shared_stream import SharedStream
from smq.transport.dialer import Dialer
from smq_core.model.entities import Segment
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import make_lock

CHECK_INTERVAL_SECONDS = 0.25
# The time after which a stream without sessions is closed.
IDLE_SECONDS = 10.0

# The primary's incarnation, the topic's uid, and the schema version.
Key = tuple[str, str, int]


class SharedStreams:
    """Safe from many threads. Streams are checked by ``timers`` as long as there are any."""

    def __init__(self, dialer: Dialer, timers: Timers) -> None:
        self._dialer = dialer
        self._timers = timers
        self._lock = make_lock(ClientLock.STREAMS)
        self._streams: dict[Key, SharedStream] = {}
        self._idle_since: dict[Key, float] = {}
        self._checked = False
        self._closed = False

    def open_session(
        self,
        segment: Segment,
        uid: str,
        schema: pa.Schema,
        hello: pb.ProducerHello,
        owner: SessionOwner,
        sender: SegmentSender,
    ) -> SharedSession:
        """A session on the stream to the segment's primary, which is opened if there is none.

        The caller holds the producer's lock.
        """
        key = (segment.primary.incarnation, uid, segment.schema_version)
        with self._lock:
            self._idle_since.pop(key, None)
            stream = self._streams.get(key)
            session = stream.add_session(segment, hello, owner, sender) if stream is not None else None
            if session is None:
                stream = self._streams[key] = SharedStream(
                    segment.primary, uid, schema, self._dialer, self._timers, self._on_ended
                )
                session = stream.add_session(segment, hello, owner, sender)
                assert session is not None, "a new stream takes sessions"
                stream.start()
            if not self._checked and not self._closed:
                self._checked = True
                self._timers.call_later(CHECK_INTERVAL_SECONDS, self._check)
        return session

    def close(self) -> None:
        """Ends all streams after what is ready was sent. Repeatable."""
        with self._lock:
            self._closed = True
            streams = list(self._streams.values())
        for stream in streams:
            stream.close()
        for stream in streams:
            stream.join(5)

    def _on_ended(self, ended: SharedStream) -> None:
        with self._lock:
            for key in [key for key, stream in self._streams.items() if stream is ended]:
                del self._streams[key]
                self._idle_since.pop(key, None)

    def _check(self) -> None:
        """Cuts streams that are unresponsive, and closes those that nobody uses."""
        now = time.monotonic()
        with self._lock:
            unresponsive = [stream for stream in self._streams.values() if stream.is_unresponsive(now)]
            for key, stream in list(self._streams.items()):
                if not stream.is_idle:
                    self._idle_since.pop(key, None)
                elif now - self._idle_since.setdefault(key, now) >= IDLE_SECONDS:
                    stream.close()
            self._checked = bool(self._streams) and not self._closed
            if self._checked:
                self._timers.call_later(CHECK_INTERVAL_SECONDS, self._check)
        for stream in unresponsive:
            stream.abort()
