"""A segment's session with one follower, on the connection to that follower's broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

from smq_broker.rows.batches import MAX_MESSAGE_BYTES
from smq_broker.rows.replication_messages import encode_message
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.journaling import is_journal_behind, write_message, write_missing
from smq_core.errors import NotHosted, SmqError, WrongIncarnation
from smq_core.model.entities import Replica
from smq_core.replica.log_entries import ReplicationMessage
from smq_core.replica.segment_replica import ReplicaState
from smq_core.sessions.lanes import SMALL
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.locks import requires_lock

# A segment that has more bytes than these to send at once sends them on a bulk lane. The transport takes as much that
# the follower has not read, so what is below never holds up others for long.
BULK_BYTES = 64 << 10
UNRESPONSIVE_AFTER_SECONDS = 0.5
INITIAL_BACKOFF_SECONDS = 0.02
MAX_BACKOFF_SECONDS = 0.5


class NoPart(Enum):
    """Why a session has nothing to send."""

    NOTHING = "nothing"
    """Also if it has to wait, or if another lane sends it."""
    JOURNAL_BEHIND = "journal behind"
    UNWANTED = "unwanted"
    """The segment is fenced or sealed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingPart:
    """``message`` is None in a part that opens the session. On a bulk lane ``rows`` go beside the frame."""

    part: pb.ReplicationFrame.Part
    message: ReplicationMessage | None = None
    rows: pa.RecordBatch | None = None
    journal_behind: bool = False
    """Whether the journal lacks entries that are not in the message, because the follower has them already."""
    has_more: bool = False


class Connection(Protocol):
    """The connection, as its sessions see it. All calls may be made under a segment's lock, but ``send_now``."""

    def mark_ready(self, session: ReplicaSession, *, wakes: bool) -> None: ...

    def mark_updated(self, session: ReplicaSession) -> None: ...

    def can_send_now(self, session: ReplicaSession) -> bool: ...

    def send_now(self) -> None: ...

    def begin(self, session: ReplicaSession, lane: int, *, bulk: bool) -> bool:
        """Whether the session may send its next batch on this lane now; see ``SessionLanes.begin``."""

    def unresponsive(self) -> bool: ...


class Connections(Protocol):
    """The connections of this broker to its followers."""

    def add(self, session: ReplicaSession) -> None:
        """Raises Unavailable if no more threads can start."""


class ReplicaSession:
    """``on_fenced`` is called when the follower replies that it is fenced. ``on_death`` is called when a thread of the
    connection has died for good, so that nothing is replicated any more.

    The session with the first follower writes the primary's own journal, too.
    """

    def __init__(
        self,
        hosted: HostedSegment,
        *,
        follower: Replica,
        on_fenced: Callable[[HostedSegment], None],
        on_death: Callable[[], None],
        connections: Connections,
    ) -> None:
        self.hosted = hosted
        self.follower = follower
        self.on_death = on_death
        self.log = hosted.log.bind(follower=follower.broker)
        self.number = 0
        """On its connection; a new one each time the segment is opened there."""
        self._on_fenced = on_fenced
        self._connections = connections
        self._writes_journal = hosted.segment.replicas[1] == follower
        self._connection: Connection | None = None
        self._is_announced = False
        self._is_open = False
        self._granted_credit = 0
        self._confirmed_credit = 0
        """What the follower was told that its credit is."""
        self._failing_since: float | None = None
        self._pause = INITIAL_BACKOFF_SECONDS

    # ---- called by the segment

    def start(self) -> None:
        """Replicates from now on, until the segment is fenced. Raises Unavailable if there can be no more threads."""
        self._connections.add(self)

    @property
    def incarnation(self) -> str:
        return self.follower.incarnation

    def unresponsive(self) -> bool:
        connection, failing_since = self._connection, self._failing_since
        if connection is not None and connection.unresponsive():
            return True
        return failing_since is not None and time.monotonic() - failing_since > UNRESPONSIVE_AFTER_SECONDS

    def notify(self, *, grown: bool, progressed: bool, sends_now: bool) -> None:
        connection = self._connection
        if connection is None:
            return
        if grown:
            connection.mark_ready(self, wakes=not sends_now)
        elif progressed:
            connection.mark_updated(self)

    def can_send_now(self) -> bool:
        connection = self._connection
        return connection is not None and self._is_open and connection.can_send_now(self)

    def send_now(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.send_now()

    # ---- called by the connection, without its lock

    @property
    def schema(self) -> pa.Schema:
        return self.hosted.wire.message

    def attach(self, connection: Connection, number: int) -> None:
        """The session has to be opened under this number."""
        self._connection, self.number = connection, number
        self._is_announced = self._is_open = False

    def detach(self) -> None:
        self._connection = None

    def disconnect(self) -> None:
        """Nothing is sent until the follower has said again where it ends."""
        with self.hosted as machine:
            machine.follower_disconnected(self.incarnation)

    def next_part(self, number: int, lane: int) -> OutgoingPart | NoPart:
        """What to send now on this lane, if the session still has this number."""
        connection, hosted = self._connection, self.hosted
        machine = hosted.machine
        with hosted.lock:
            if connection is None or number != self.number:
                return NoPart.NOTHING
            if not self._is_wanted:
                return NoPart.UNWANTED
            if not self._is_announced:
                self._is_announced = True
                opening = pb.ReplicationFrame.Open(segment=hosted.name, uid=hosted.topic.uid)
                return OutgoingPart(part=pb.ReplicationFrame.Part(session=number, open=opening))
            if not self._is_open:
                return NoPart.NOTHING
            kind = machine.pending_replication(self.incarnation)
            if kind is None:
                return NoPart.JOURNAL_BEHIND if self._is_journal_behind else NoPart.NOTHING
            bulk = kind == "entries" and machine.has_much_to_replicate(self.incarnation, BULK_BYTES)
            if not connection.begin(self, lane, bulk=bulk):
                return NoPart.NOTHING
            message = machine.replication_for(self.incarnation, max_bytes=MAX_MESSAGE_BYTES)
            assert message is not None, "it was pending"
            behind = not message.entries and self._is_journal_behind
            has_more = bulk and machine.pending_replication(self.incarnation) == "entries"
        return self._encode(number, lane, message, behind, has_more)

    def credit_part(self) -> pb.ReplicationFrame.Part | None:
        """Confirms the follower's credit if it was not confirmed with entries."""
        with self.hosted.lock:
            if not self._is_open or not self._is_wanted:
                return None
            machine, number = self.hosted.machine, self.number
            credit = machine.confirmed_credit(self.incarnation)
            message = ReplicationMessage(
                base_offset=0, entries=(), watermark=machine.watermark, chain_end=machine.chain_end, credit=credit
            )
        return self._encode(number, SMALL, message).part if credit != self._confirmed_credit else None

    def write_journal(self, sent: OutgoingPart) -> None:
        """Writes to the primary's journal what was sent. The follower writes its own meanwhile."""
        message = sent.message
        if message is not None and message.entries and self._writes_journal:
            write_message(self.hosted, message, sent.part.header, sent.part.rows if sent.rows is None else sent.rows)

    def write_missing(self) -> None:
        write_missing(self.hosted)

    def apply(self, reply: pb.ReplicationReply) -> bool:
        """Applies a reply. Returns whether there is more to do.

        Raises the follower's error, and OffsetMismatch if it is not the expected replica.
        """
        if reply.HasField("error"):
            raise error_from_pb(reply.error)
        hosted = self.hosted
        with hosted as machine:
            first = not self._is_open
            if first:
                machine.follower_connected(self.incarnation, reply.end, reply.credit)
                self._is_open = True
                hosted.capacity_freed.notify_all()
                self.log.info("follower.connected", end=reply.end, credit=reply.credit)
            else:
                if reply.credit and reply.credit != self._granted_credit:
                    machine.follower_granted(self.incarnation, reply.credit)
                    hosted.capacity_freed.notify_all()
                machine.follower_acked(self.incarnation, reply.end)
            self._granted_credit = reply.credit or self._granted_credit
            has_more = first or machine.pending_replication(self.incarnation) == "entries"
        self._failing_since = None
        self._pause = INITIAL_BACKOFF_SECONDS
        return has_more

    def fenced(self) -> None:
        """The follower has replied that it is fenced."""
        self.log.info("follower.fenced")
        self._on_fenced(self.hosted)

    def fail(self, error: SmqError) -> float:
        """The follower has ended the session. Returns after how many seconds to open the segment there again."""
        level = self.log.debug if isinstance(error, NotHosted) else self.log.warning
        level("follower.disconnected", error=error.message, code=error.code)
        # NotHosted is an answer too: the follower has not opened the segment yet.
        self._failing_since = None if isinstance(error, NotHosted) else self._failing_since or time.monotonic()
        pause = MAX_BACKOFF_SECONDS if isinstance(error, WrongIncarnation) else self._pause
        self._pause = min(pause * 2, MAX_BACKOFF_SECONDS)
        return pause

    # ---- internal

    @property
    def _is_wanted(self) -> bool:
        """Whether the segment may still have something to replicate."""
        return self.hosted.machine.state in (ReplicaState.WAITING, ReplicaState.OPEN)

    @property
    @requires_lock("hosted.lock")
    def _is_journal_behind(self) -> bool:
        """Whether this session has to write entries to the journal that it has not sent itself."""
        return self._writes_journal and is_journal_behind(self.hosted)

    def _encode(
        self,
        number: int,
        lane: int,
        message: ReplicationMessage,
        journal_behind: bool = False,
        has_more: bool = False,
    ) -> OutgoingPart:
        self._confirmed_credit = message.credit
        header, rows = encode_message(message, self.hosted.wire.empty)
        part = pb.ReplicationFrame.Part(session=number, header=header)
        if rows is not None and lane == SMALL:
            part.rows, rows = rows.serialize().to_pybytes(), None
        return OutgoingPart(part=part, message=message, rows=rows, journal_behind=journal_behind, has_more=has_more)
