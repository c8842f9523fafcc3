"""What a primary knows of one follower of a segment, over whichever stream it is reached."""

from __future__ import annotations

import pyarrow as pa

from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.journaling import is_journal_behind, write_message, write_missing
from smq_core.model.entities import Replica
from smq_core.replica.log_entries import ReplicationMessage
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import error_from_pb
from smq_storage.process.locks import requires_lock

# A segment that has more bytes than these to send at once gets its own stream.
OWN_STREAM_BYTES = 256 << 10
# A message of more bytes is large: it waits for nothing, and keeps its segment on a separate stream.
#
# It is less than ``OWN_STREAM_BYTES``, because what has gathered while a segment was sealed should not cost its
# successor a new stream at once.
LARGE_BYTES = 64 << 10


class LinkState:
    """The link to the first follower writes the primary's own journal, too."""

    def __init__(self, hosted: HostedSegment, follower: Replica) -> None:
        self.hosted = hosted
        self.follower = follower
        self.log = hosted.log.bind(follower=follower.broker)
        self._writes_journal = hosted.segment.replicas[1] == follower
        self._credit = 0

    @property
    def incarnation(self) -> str:
        return self.follower.incarnation

    @property
    def is_wanted(self) -> bool:
        """Whether the segment may still have something to replicate."""
        return self.hosted.machine.state in (ReplicaState.WAITING, ReplicaState.OPEN)

    @property
    @requires_lock("hosted.lock")
    def has_large_message(self) -> bool:
        """Whether more waits than goes out as a small message."""
        return self.hosted.machine.has_much_to_replicate(self.incarnation, LARGE_BYTES)

    @property
    @requires_lock("hosted.lock")
    def needs_own_stream(self) -> bool:
        return self.hosted.machine.has_much_to_replicate(self.incarnation, OWN_STREAM_BYTES)

    @property
    @requires_lock("hosted.lock")
    def has_entries(self) -> bool:
        return self.hosted.machine.pending_replication(self.incarnation) == "entries"

    @property
    @requires_lock("hosted.lock")
    def is_journal_behind(self) -> bool:
        """Whether this link has to write entries to the journal that it has not sent itself."""
        return self._writes_journal and is_journal_behind(self.hosted)

    def write_journal(self, message: ReplicationMessage, header: bytes, rows: pa.RecordBatch | bytes) -> None:
        if self._writes_journal:
            write_message(self.hosted, message, header, rows)

    def write_missing(self) -> None:
        write_missing(self.hosted)

    @requires_lock("hosted.lock")
    def heartbeat(self) -> ReplicationMessage:
        """A message without entries, which confirms the follower's credit."""
        machine = self.hosted.machine
        return ReplicationMessage(
            0, (), machine.watermark, machine.chain_end, machine.confirmed_credit(self.incarnation)
        )

    def apply(self, reply: pb.ReplicationReply, *, first: bool) -> None:
        """Applies a reply; ``first`` is the one that opens the segment at the follower.

        Raises the follower's error, and OffsetMismatch if it is not the expected replica.
        """
        if reply.HasField("error"):
            raise error_from_pb(reply.error)
        hosted = self.hosted
        with hosted as machine:
            if first:
                machine.follower_connected(self.incarnation, reply.end, reply.credit)
                hosted.capacity_freed.notify_all()
                self.log.info("follower.connected", end=reply.end, credit=reply.credit)
            else:
                if reply.credit and reply.credit != self._credit:
                    machine.follower_granted(self.incarnation, reply.credit)
                    hosted.capacity_freed.notify_all()
                machine.follower_acked(self.incarnation, reply.end)
            self._credit = reply.credit or self._credit

    def disconnect(self) -> None:
        with self.hosted as machine:
            machine.follower_disconnected(self.incarnation)
