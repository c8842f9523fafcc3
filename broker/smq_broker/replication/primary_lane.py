"""One lane of a connection to a follower: what is sent on it, and by which thread.

On the small lane, what is ready at one moment is one frame, which the follower answers with one reply. So a frame that
touches many segments costs two writes and two reads, and idle segments cost nothing but the lane's heartbeat. A small
frame is written by whoever made it ready: the thread that has appended, or one that reads replies. The lane's own
thread does it if there is more. On a bulk lane the sessions take turns, with one batch in a frame, and only its own
thread writes, because a large write blocks until the follower has read most of it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from smq_broker.replication.lane_stream import LaneStream
from smq_broker.replication.replica_session import NoPart, OutgoingPart, ReplicaSession
from smq_broker.runtime.lock_order import BrokerLock
from smq_broker.runtime.threads import ThreadSupervisor
from smq_core.errors import SmqError
from smq_core.sessions.lanes import SMALL, SessionLanes
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import make_lock, requires_lock

MAX_FRAME_BYTES = 256 << 10
# A frame up to this size is written at once. The transport takes 64 KiB that the follower has not read.
MAX_DIRECT_BYTES = 32 << 10
# The longest time that a lane's thread sleeps.
MAX_WAIT_SECONDS = 1.0


class LaneOwner(Protocol):
    """The connection, as its lanes see it. ``lock`` guards ``machine`` and ``sessions``."""

    @property
    def lock(self) -> threading.RLock: ...

    @property
    def machine(self) -> SessionLanes: ...

    @property
    def sessions(self) -> dict[int, ReplicaSession]: ...

    @property
    def spacing_seconds(self) -> float: ...

    def mark_ready(self, session: ReplicaSession, *, wakes: bool) -> None: ...

    def reopen_failed(self, now: float) -> None:
        """Opens the sessions again whose time has come."""

    def remove(self, number: int) -> bool:
        """Whether the session was still there."""

    def is_unused(self, lane: Lane, now: float) -> bool:
        """Whether the lane has to end, because nobody has used it for a while."""

    def received(self, lane: Lane, reply: pb.ReplicationFrameReply, *, first: bool) -> None: ...

    def fail(self, error: SmqError) -> None:
        """Ends the connection, with all lanes."""

    def crash(self, error: Exception) -> None:
        """Ends the connection because of a bug."""


class Lane:
    """``run`` it in a separate thread (docs/threads.md)."""

    def __init__(self, connection: LaneOwner, number: int, subject: str, threads: ThreadSupervisor) -> None:
        self.number = number
        self._connection = connection
        self._machine = connection.machine
        self._wake = threading.Condition(connection.lock)
        self._writing = make_lock(BrokerLock.WRITING)
        """Held while a frame is put together and written."""
        self._waits_until = 0.0
        """When the lane's thread looks again without being notified; 0 while it is not waiting."""
        self._stopped = False
        first = itertools.chain([True], itertools.repeat(False))
        self._stream = LaneStream(
            subject, threads, lambda reply: connection.received(self, reply, first=next(first)), self._fail
        )

    @requires_lock("_wake")
    def stop(self) -> None:
        """The connection has broken. Repeatable."""
        self._stopped = True
        self._wake.notify()

    @requires_lock("_wake")
    def wake_in_time(self) -> None:
        """Wakes the lane's thread, unless it will look in time."""
        now = time.monotonic()
        if self._waits_until > self._machine.held_until(self.number, now, self._connection.spacing_seconds):
            self._wake.notify()

    @requires_lock("_wake")
    def wake_for_update(self, due: float) -> None:
        """As ``wake_in_time``, for what is due later."""
        if self._waits_until > due:
            self._wake.notify()

    def send_now(self) -> None:
        """Sends what is ready on the small lane in this thread if it can, or leaves it to the lane's own."""
        if not self._writing.acquire(blocking=False):
            return  # who holds it looks for more afterwards
        try:
            if not self._stopped and self._machine.is_free(self._connection.spacing_seconds, time.monotonic()):
                self._send(MAX_DIRECT_BYTES)
        except SmqError as error:
            self._fail(error)
        except Exception as error:
            self._connection.crash(error)
        finally:
            self._writing.release()
            with self._connection.lock:
                if self._machine.is_ready(self.number):
                    self.wake_in_time()

    def run(self, connect: Callable[[], Any], hello: pb.PutOpen, schema: pa.Schema) -> SmqError | None:
        """Sends until the connection ends, or nobody has used the lane for a while. Blocks.

        Returns the error with which the follower has ended the lane.
        """
        try:
            with self._connection.lock:
                if self._stopped:
                    return None
                self._machine.opening_lane(self.number, time.monotonic())
            self._stream.open(connect(), hello, schema)
            self._send_loop()
        except SmqError as error:
            self._fail(error)
        except Exception as error:
            self._connection.crash(error)
        with self._writing, self._connection.lock:
            self._stopped = True
        return self._stream.end()

    def _fail(self, error: SmqError) -> None:
        with self._connection.lock:
            if not self._stopped:
                self._connection.fail(error)

    def _send_loop(self) -> None:
        connection = self._connection
        while True:
            with self._writing:
                if self._stopped:
                    return
                if self._send_due():
                    continue
            with connection.lock:
                now = time.monotonic()
                if self._stopped or connection.is_unused(self, now):
                    return
                due = self._machine.due(self.number, now, connection.spacing_seconds)
                self._waits_until = min(due, now + MAX_WAIT_SECONDS)
                self._wake.wait(max(0.0, self._waits_until - now))
                self._waits_until = 0.0

    @requires_lock("_writing")
    def _send_due(self) -> bool:
        """Sends the next frame if one is due."""
        now = time.monotonic()
        with self._connection.lock:
            beats = self._machine.take_heartbeat(self.number, now)
            beating = []
            if self.number == SMALL:
                self._connection.reopen_failed(now)
                beating = list(self._connection.sessions.values()) if beats else []
        confirmed = [part for session in beating if (part := session.credit_part()) is not None]
        return self._send(MAX_FRAME_BYTES, confirmed, always=beats)

    @requires_lock("_writing")
    def _send(
        self, max_bytes: int, confirmed: list[pb.ReplicationFrame.Part] | None = None, *, always: bool = False
    ) -> bool:
        """Sends what is ready as one frame. False if that is nothing."""
        connection, machine = self._connection, self._machine
        with connection.lock:
            taken = machine.take(self.number, time.monotonic(), connection.spacing_seconds)
            ready = [(number, connection.sessions[number]) for number in taken]
        frame = pb.ReplicationFrame(parts=confirmed)
        outgoing: list[tuple[ReplicaSession, OutgoingPart]] = []
        missing: list[ReplicaSession] = []
        size = 0
        for number, session in ready:
            if size >= max_bytes:
                connection.mark_ready(session, wakes=False)
                continue
            match session.next_part(number, self.number):
                case OutgoingPart() as found:
                    outgoing.append((session, found))
                    frame.parts.append(found.part)
                    size += found.part.ByteSize()
                    if found.journal_behind:
                        missing.append(session)
                    if found.has_more:
                        connection.mark_ready(session, wakes=False)
                case NoPart.UNWANTED:
                    if connection.remove(number):
                        frame.parts.add(session=number, close=True)
                case NoPart.JOURNAL_BEHIND:
                    missing.append(session)
                case NoPart.NOTHING:
                    pass
        sends = bool(frame.parts) or always
        if sends:
            with connection.lock:
                begun = [it.part.session for _, it in outgoing if it.message is not None]
                machine.sent(self.number, begun, time.monotonic())
            self._stream.write(frame, next((it.rows for _, it in outgoing), None))
        for session in missing:
            session.write_missing()
        for session, it in outgoing:
            session.write_journal(it)
        return sends or bool(missing)
