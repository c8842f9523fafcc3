"""A follower's end of one lane: the sessions of all segments that one broker leads and this one follows."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import structlog

from smq_broker.access.callers import Caller
from smq_broker.replication.follower import FollowedSegment
from smq_broker.rows.ipc_messages import read_rows
from smq_broker.segments.journaling import trim_journal
from smq_broker.segments.registry import SegmentRegistry
from smq_core.errors import InvalidRequest, SmqError, Unavailable
from smq_proto.error_conversion import error_to_pb
from smq_proto.flight import parse
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import make_lock

# How often idle segments are checked: busy ones get the credit that they do not need, and the primary learns which
# were fenced here.
CHECK_SECONDS = 1.0

# The sessions of one connection, by their numbers.
Sessions = dict[int, FollowedSegment]

log = structlog.get_logger(__name__)


class PrimaryConnections:
    """The sessions of each connection from a primary's broker, for its lanes. Safe from many threads."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self._sessions: dict[tuple[str, str], Sessions] = {}

    def begin(self, hello: pb.ReplicaHello) -> Sessions:
        """The small lane has opened. Raises InvalidRequest if the connection has one already."""
        key = (hello.primary_incarnation, hello.connection)
        with self._lock:
            if key in self._sessions:
                raise InvalidRequest("a connection has one small lane: give each connection a name of its own")
            return self._sessions.setdefault(key, {})

    def find(self, hello: pb.ReplicaHello) -> Sessions:
        """Raises Unavailable if the small lane has ended."""
        with self._lock:
            sessions = self._sessions.get((hello.primary_incarnation, hello.connection))
        if sessions is None:
            raise Unavailable("the connection has no small lane, or it has ended: connect again")
        return sessions

    def end(self, hello: pb.ReplicaHello) -> None:
        """The small lane has ended, and with it all sessions."""
        with self._lock:
            sessions = self._sessions.pop((hello.primary_incarnation, hello.connection))
        while sessions:
            sessions.popitem()[1].close()


class FollowerLane:
    """Serves one lane. One thread reads frames, appends and replies.

    Two lanes never bring batches of one session at once, because the primary waits for the answer before it changes
    the session's lane.
    """

    def __init__(
        self,
        registry: SegmentRegistry,
        *,
        caller: Caller,
        connections: PrimaryConnections,
        hello: pb.PutOpen,
        reader: Any,
        writer: Any,
    ) -> None:
        self._registry = registry
        self._caller = caller
        self._connections = connections
        self._incarnation = hello.incarnation
        self._hello = hello.replica
        self._reader = reader
        self._writer = writer
        self._sessions: Sessions = {}
        self._check_due_at = 0.0

    @property
    def _is_bulk(self) -> bool:
        return self._hello.lane == pb.LANE_BULK

    def serve(self) -> None:
        """Returns when the primary ends the lane. Raises an error that was sent to the primary."""
        try:
            if self._is_bulk:
                self._sessions = self._connections.find(self._hello)
                self._serve()
                return
            if len(self._reader.schema):  # before any batch is read, which Arrow would decompress to any size
                raise InvalidRequest("the small lane of a replica has no columns: send the rows in its frames")
            self._sessions = self._connections.begin(self._hello)
            try:
                self._serve()
            finally:
                self._connections.end(self._hello)
        except SmqError as error:
            with suppress(OSError, pa.ArrowException):  # the primary may be gone already
                self._writer.write(pb.ReplicationFrameReply(error=error_to_pb(error)).SerializeToString())
            raise
        except OSError as error:
            log.info("primary.disconnected", primary=self._hello.primary_incarnation, error=str(error))

    def _serve(self) -> None:
        self._writer.write(pb.ReplicationFrameReply().SerializeToString())
        while True:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                return
            self._receive(parse(pb.ReplicationFrame, chunk.app_metadata or b""), chunk.data)

    def _receive(self, frame: pb.ReplicationFrame, rows: pa.RecordBatch | None) -> None:
        now = time.monotonic()
        if now >= self._caller.check_at:
            self._caller.recheck()
        reply = pb.ReplicationFrameReply()
        grown: list[FollowedSegment] = []
        if rows is not None and len(frame.parts) != 1:
            raise InvalidRequest(f"a batch came with {len(frame.parts)} parts: send the rows of one beside a frame")
        for part in frame.parts:
            self._reply(reply, part.session, partial(self._handle, part, rows, grown))
        if not self._is_bulk and now >= self._check_due_at:
            self._check_due_at = now + CHECK_SECONDS
            for session, followed in list(self._sessions.items()):
                self._reply(reply, session, followed.periodic_reply)
        self._writer.write(reply.SerializeToString())
        for followed in grown:
            trim_journal(followed.hosted)  # after the reply, which the primary waits for

    def _reply(
        self, reply: pb.ReplicationFrameReply, session: int, handle: Callable[[], pb.ReplicationReply | None]
    ) -> None:
        """Adds what ``handle`` returns, if anything, or its error, which ends the session."""
        try:
            answer = handle()
        except Exception as error:
            if not isinstance(error, SmqError):
                log.exception("replication.failed", primary=self._hello.primary_incarnation)
                error = SmqError(f"the follower failed: {type(error).__name__}: {error}")
            self._close(session)
            answer = pb.ReplicationReply(end=0, error=error_to_pb(error))
        if answer is not None:
            reply.parts.add(session=session, reply=answer)

    def _handle(
        self, part: pb.ReplicationFrame.Part, rows: pa.RecordBatch | None, grown: list[FollowedSegment]
    ) -> pb.ReplicationReply | None:
        """The answer to one part, if it needs one."""
        if part.HasField("open"):
            return self._open(part.session, part.open)
        if part.close:
            self._close(part.session)
            return None
        followed = self._sessions.get(part.session)
        if followed is None:
            return None  # the session has failed, and the primary does not know it yet
        encoded, same_schema = part.rows, True
        if rows is not None:
            if encoded:
                raise InvalidRequest("rows came in a part and beside its frame: send either of them")
            same_schema = followed.hosted.wire.check_stream(rows.schema)
        elif encoded:
            rows = read_rows(encoded, followed.hosted.wire.message)
        grown.append(followed)
        return followed.replicate(part.header, rows, same_schema=same_schema, encoded=encoded)

    def _open(self, session: int, request: pb.ReplicationFrame.Open) -> pb.ReplicationReply:
        """Raises NotHosted if the leader's request to open the segment has not come yet, and WrongIncarnation."""
        if self._is_bulk:
            raise InvalidRequest("a session is opened on the small lane")
        if session in self._sessions:
            raise InvalidRequest(f"session {session} is open already: give each session a number of its own")
        hosted = self._registry.find(request.segment, request.uid, self._incarnation, wait_seconds=0.0)
        followed = self._sessions[session] = FollowedSegment(hosted, self._hello.primary_incarnation)
        return followed.opened_reply()

    def _close(self, session: int) -> None:
        followed = self._sessions.pop(session, None)
        if followed is not None:
            followed.close()
