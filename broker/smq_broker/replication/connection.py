"""From a primary's broker to a follower's: one connection for the sessions of all segments that they share.

It has a small lane, and a bulk lane for each schema with large batches (``lane``). If one of them breaks, the
connection has, and all sessions are opened again on the next one. ``SessionLanes`` decides who sends when, and on which
lane.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from uuid import uuid4

import pyarrow as pa
import structlog

from smq_broker.replication.lane_stream import ConnectFlight, LaneEnded
from smq_broker.replication.message_spacing import ActiveClients
from smq_broker.replication.primary_lane import Lane
from smq_broker.replication.replica_session import (
    INITIAL_BACKOFF_SECONDS,
    MAX_BACKOFF_SECONDS,
    UNRESPONSIVE_AFTER_SECONDS,
    ReplicaSession,
)
from smq_broker.runtime.lock_order import BrokerLock
from smq_broker.runtime.threads import Task, ThreadSupervisor
from smq_core.errors import SegmentSealed, SmqError, Unavailable
from smq_core.model.entities import Replica
from smq_core.sessions.lanes import SMALL, LaneTimes, SessionLanes
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL
from smq_storage.process.locks import make_rlock, requires_lock

# A new watermark or chain end waits for ``update_seconds`` for entries that take it along. A follower that is slow to
# answer would not answer a second small frame sooner, so it waits for ``hold_seconds``.
TIMES = LaneTimes(heartbeat_seconds=1.0, hold_seconds=0.02, update_seconds=0.02)
# How long a connection without sessions stays, and an unused bulk lane. Further segments may follow.
IDLE_SECONDS = 10.0
# How long bulk goes on the small lane if the thread of a bulk lane cannot be started.
RETRY_SECONDS = 1.0
NO_SCHEMA = pa.schema([])

log = structlog.get_logger(__name__)


class ReplicaConnection:
    """``run`` it in a thread, which is that of the small lane (docs/threads.md)."""

    def __init__(
        self,
        follower: Replica,
        *,
        primary_incarnation: str,
        threads: ThreadSupervisor,
        clients: ActiveClients,
        connect_flight: ConnectFlight,
        times: LaneTimes,
    ) -> None:
        self._follower = follower
        self._primary_incarnation = primary_incarnation
        self._threads = threads
        self._clients = clients
        self._connect_flight = connect_flight
        self._times = times
        self.lock = make_rlock(BrokerLock.STREAM)
        self.machine = SessionLanes(times)
        self.sessions: dict[int, ReplicaSession] = {}
        self._failed: dict[int, ReplicaSession] = {}
        """Sessions to open again, by their former numbers."""
        self._name = ""
        """What the lanes of the present connection have in common."""
        self._lanes: dict[int, Lane] = {}
        self._bulk_lanes: dict[pa.Schema, int] = {}
        self._lane_numbers = itertools.count(SMALL + 1)
        self._no_bulk_until = 0.0
        self._error: SmqError | None = None
        """Why the present connection has to end."""
        self._bug: Exception | None = None
        """What a thread has raised that should not."""
        self._empty_since = time.monotonic()
        self._closed = False

    # ---- called by sessions

    def add(self, session: ReplicaSession) -> bool:
        """False if the connection has ended."""
        with self.lock:
            if self._closed:
                return False
            self._attach(session)
            self._wake_lane(SMALL)
        return True

    def mark_ready(self, session: ReplicaSession, *, wakes: bool) -> None:
        with self.lock:
            lane = self.machine.mark_ready(session.number, time.monotonic())
            if lane is not None and (wakes or lane != SMALL):
                self._wake_lane(lane)

    def mark_updated(self, session: ReplicaSession) -> None:
        with self.lock:
            now = time.monotonic()
            if self.machine.mark_updated(session.number, now) and SMALL in self._lanes:
                self._lanes[SMALL].wake_for_update(now + self._times.update_seconds)

    def can_send_now(self, session: ReplicaSession) -> bool:
        """Whether a small frame with this session can be written without blocking."""
        machine = self.machine
        return machine.lane_of(session.number) == SMALL and machine.is_free(self.spacing_seconds, time.monotonic())

    def send_now(self) -> None:
        small = self._lanes.get(SMALL)
        if small is not None:
            small.send_now()

    def begin(self, session: ReplicaSession, lane: int, *, bulk: bool) -> bool:
        with self.lock:
            wanted = self._bulk_lane(session.schema) if bulk else SMALL
            if self.machine.begin(session.number, lane, wanted, time.monotonic()):
                return True
            if wanted != lane:
                self._wake_lane(wanted)
            return False

    def unresponsive(self) -> bool:
        """True if the follower has answered nothing for at least 500 ms, although it should."""
        since = self.machine.unanswered_since
        return since is not None and time.monotonic() - since > UNRESPONSIVE_AFTER_SECONDS

    # ---- called by lanes

    @property
    def spacing_seconds(self) -> float:
        return self._clients.spacing_seconds

    def fail(self, error: SmqError) -> None:
        with self.lock:
            self._error = self._error or error
            self._stop_lanes()

    def crash(self, error: Exception) -> None:
        """The thread of the small lane raises the bug. If it comes again and again, the segments are fenced."""
        with self.lock:
            self._bug = self._bug or error
            self._stop_lanes()

    @requires_lock("lock")
    def reopen_failed(self, now: float) -> None:
        for former in self.machine.take_retries(now):
            self._attach(self._failed.pop(former))

    def remove(self, number: int) -> bool:
        with self.lock:
            session = self.sessions.pop(number, None)
            if session is None:
                return False
            self.machine.remove(number)
            self._empty_since = time.monotonic()
            session.detach()
        return True

    @requires_lock("lock")
    def is_unused(self, lane: Lane, now: float) -> bool:
        if lane.number == SMALL:
            return self._was_empty_for_long()
        if not self.machine.close_if_unused(lane.number, now, IDLE_SECONDS):
            return False
        lane.stop()
        del self._lanes[lane.number]
        self._bulk_lanes = {schema: number for schema, number in self._bulk_lanes.items() if number != lane.number}
        return True

    def received(self, lane: Lane, reply: pb.ReplicationFrameReply, *, first: bool) -> None:
        now = time.monotonic()
        with self.lock:
            if self._lanes.get(lane.number) is not lane:
                return  # of a former connection
            if first:
                self.machine.open_lane(lane.number, now)
                lane.wake_in_time()
            else:
                for ready in self.machine.on_frame(lane.number, now) - {SMALL}:
                    self._wake_lane(ready)
        for part in reply.parts:
            session = self.sessions.get(part.session)
            if session is not None:
                self._deliver(part.session, session, part.reply)
        if self.machine.is_ready(SMALL):
            self.send_now()

    # ---- connecting

    def run(self) -> None:
        """Replicates until there were no sessions for a while. Blocks."""
        pause = INITIAL_BACKOFF_SECONDS
        while not self._close_if_empty():
            began = time.monotonic()
            try:
                self._run_connection()
            except SmqError as error:
                log.warning(
                    "follower.disconnected", follower=self._follower.broker, error=error.message, code=error.code
                )
            finally:
                self._reopen_all()
            if time.monotonic() - began > 2.0:
                pause = INITIAL_BACKOFF_SECONDS
            time.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)

    def fail_sessions(self) -> None:
        """The thread of this connection has died for good."""
        with self.lock:
            self._closed = True
            sessions = self._take_all_sessions()
        for session in sessions:
            session.detach()
        for session in sessions:
            session.on_death()

    def _run_connection(self) -> None:
        """Runs one connection until it breaks (raises SmqError) or is not needed any more."""
        lane = Lane(self, SMALL, self._follower.broker, self._threads)
        with self.lock:
            self._error = self._bug = None
            self._name = uuid4().hex
            self._lanes, self._bulk_lanes = {SMALL: lane}, {}
        closing_error = self._run_lane(lane, pb.LANE_SMALL, NO_SCHEMA)
        with self.lock:
            # Bulk lanes end by themselves, because one may be writing to a follower that does not read.
            self._stop_lanes()
            reason: Exception | None = self._bug or self._error
        if isinstance(reason, LaneEnded):
            reason = closing_error or (reason if self.sessions else None)
        if reason is not None:
            raise reason

    def _run_lane(self, lane: Lane, kind: pb.Lane, schema: pa.Schema) -> SmqError | None:
        replica = pb.ReplicaHello(primary_incarnation=self._primary_incarnation, connection=self._name, lane=kind)
        hello = pb.PutOpen(protocol=PROTOCOL, incarnation=self._follower.incarnation, replica=replica)
        follower = self._follower
        return lane.run(lambda: self._connect_flight(follower.address, follower.incarnation), hello, schema)

    @requires_lock("lock")
    def _stop_lanes(self) -> None:
        for lane in self._lanes.values():
            lane.stop()

    def _close_if_empty(self) -> bool:
        with self.lock:
            self._closed = self._was_empty_for_long()
            return self._closed

    @requires_lock("lock")
    def _was_empty_for_long(self) -> bool:
        is_empty = not self.sessions and not self._failed
        return is_empty and time.monotonic() - self._empty_since >= IDLE_SECONDS

    @requires_lock("lock")
    def _take_all_sessions(self) -> list[ReplicaSession]:
        """Removes and returns all sessions, also those that are to be opened again."""
        sessions = [*self.sessions.values(), *self._failed.values()]
        self.sessions, self._failed = {}, {}
        self.machine.clear(time.monotonic())
        return sessions

    @requires_lock("lock")
    def _attach(self, session: ReplicaSession) -> None:
        number = self.machine.add(time.monotonic())
        session.attach(self, number)
        self.sessions[number] = session

    def _reopen_all(self) -> None:
        """Lets all sessions be opened again, on the next connection."""
        with self.lock:
            sessions = [*self.sessions.values(), *self._failed.values()]
        for session in sessions:
            session.disconnect()
        with self.lock:
            for session in self._take_all_sessions():  # more may have come meanwhile
                self._attach(session)

    # ---- lanes

    @requires_lock("lock")
    def _wake_lane(self, lane: int) -> None:
        if lane in self._lanes:
            self._lanes[lane].wake_in_time()

    @requires_lock("lock")
    def _bulk_lane(self, schema: pa.Schema) -> int:
        """The lane for bulk of this schema, which is opened if there is none."""
        if schema in self._bulk_lanes:
            return self._bulk_lanes[schema]
        if time.monotonic() < self._no_bulk_until:
            return SMALL
        lane = Lane(self, next(self._lane_numbers), self._follower.broker, self._threads)

        def run() -> None:
            self._run_lane(lane, pb.LANE_BULK, schema)

        died = partial(self.fail, Unavailable("the thread of a bulk lane died"))
        try:
            self._threads.start(
                Task(kind="bulk-lane", run=run, subject=self._follower.broker, on_death=died, restarts=False)
            )
        except Unavailable:
            self._no_bulk_until = time.monotonic() + RETRY_SECONDS
            return SMALL
        self._lanes[lane.number] = lane
        self._bulk_lanes[schema] = lane.number
        return lane.number

    # ---- replies

    def _deliver(self, number: int, session: ReplicaSession, reply: pb.ReplicationReply) -> None:
        try:
            has_more = session.apply(reply)
        except SegmentSealed:
            session.fenced()  # if this fails, the session is still there, and the follower is asked again
            self.remove(number)
            session.disconnect()
        except SmqError as error:
            with self.lock:
                if self.sessions.pop(number, None) is None:
                    return
                self._failed[number] = session
                self.machine.fail(number, time.monotonic() + session.fail(error))
                self._wake_lane(SMALL)
            session.disconnect()
        else:
            if has_more:
                self.mark_ready(session, wakes=False)
