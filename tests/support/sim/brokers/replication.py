"""Primary and follower: one stream per (segment, follower), which is reopened after a short pause when it breaks.

It stands in for ``ReplicaSession``, ``FollowedSegment`` and their connections. Events call it, and find all locks free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import OffsetMismatch, SegmentSealed, SmqError
from smq_core.model.entities import Replica
from smq_core.replica.log_entries import ReplicationMessage
from smq_core.replica.segment_replica import ReplicaState
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, SECOND

if TYPE_CHECKING:
    from support.sim.brokers.broker import SimulatedBroker
    from support.sim.brokers.hosted_segment import SimulatedSegment

UNRESPONSIVE_AFTER = 500 * MS
ENDED = (ReplicaState.FENCED, ReplicaState.SEALED)


class ReplicaLink:
    """The primary's side of one stream. The link to the first follower has the primary's journal written, too."""

    def __init__(
        self,
        broker: SimulatedBroker,
        hosted: HostedSegment,
        follower: Replica,
        on_fenced: Callable[[HostedSegment], None],
    ) -> None:
        self.broker = broker
        self.hosted = hosted
        self.follower = follower
        self.stream: SimulatedStream | None = None
        self.last_message_at = broker.world.now
        self._on_fenced = on_fenced
        self._sent_at = 0
        self._owed_since: int | None = None
        """Since when the follower has owed an answer."""
        self._sending = False

    # ---- called by the segment, also under its lock

    @property
    def incarnation(self) -> str:
        return self.follower.incarnation

    def start(self) -> None:
        self.broker.process.after(0, self.connect)

    def unresponsive(self) -> bool:
        since = self._owed_since
        return since is not None and self.broker.world.now - since > UNRESPONSIVE_AFTER

    def notify(self, *, grown: bool, progressed: bool, sends_now: bool) -> None:
        if not self._sending:
            self._sending = True
            self.broker.process.after(self.broker.world.between(1 * MS, 20 * MS), self._send)

    def can_send_now(self) -> bool:
        return False

    def send_now(self) -> None:
        """It never can."""

    # ---- events

    def connect(self) -> None:
        if self.hosted.machine.state in ENDED:
            return
        broker, name = self.broker, self.hosted.name
        stream = SimulatedStream(
            broker.network,
            broker.process,
            self.follower.address,
            "replica",
            name,
            self.follower.incarnation,
            broker.incarnation,
        )
        self.stream = stream
        self._expects_reply()
        stream.on_client_message = lambda message: self.on_message(stream, message)

    def on_message(self, stream: SimulatedStream, message: Any) -> None:
        self.last_message_at, self._owed_since = self.broker.world.now, None
        match message:
            case ("hello", int(end), int(credit)):
                try:
                    with self.hosted as machine:
                        machine.follower_connected(self.incarnation, end, credit)
                except OffsetMismatch:
                    self.broke(stream)
            case ("end", int(end)):
                with self.hosted as machine:
                    machine.follower_acked(self.incarnation, end)
            case SegmentSealed():
                self._on_fenced(self.hosted)
                self.broke(stream)
            case None | SmqError():
                self.broke(stream)
        self.notify(grown=True, progressed=True, sends_now=False)

    def tick(self) -> None:
        now = self.broker.world.now
        if self.stream is None:
            return
        if now - self.last_message_at > 2 * SECOND and now - self._sent_at > 500 * MS:
            self.broke(self.stream)
        elif now - self._sent_at > SECOND:
            self._expects_reply()
            self.stream.up("ping")

    def broke(self, stream: SimulatedStream) -> None:
        if stream is not self.stream:
            return
        self.stream = None
        stream.leave()
        with self.hosted as machine:
            machine.follower_disconnected(self.incarnation)
        self.broker.process.after(self.broker.world.between(50 * MS, 400 * MS), self.connect)

    # ---- inside

    def _send(self) -> None:
        """Sends all that is pending for this follower, or ends the stream of a segment that was fenced."""
        self._sending = False
        while (stream := self.stream) is not None:
            if self.hosted.machine.state in ENDED:
                self._owed_since = None
                self.broke(stream)
                return
            with self.hosted.lock:
                message = self.hosted.machine.replication_for(self.incarnation, max_bytes=1000)
            if message is None:
                break
            self._expects_reply()
            stream.up(message)
        if self.hosted.segment.replicas[1] == self.follower:
            self.broker.segment_of(self.hosted).write_journal()

    def _expects_reply(self) -> None:
        self._sent_at = self.broker.world.now
        self._owed_since = self._owed_since or self._sent_at


class ReplicaServer:
    """The follower's side of one stream."""

    def __init__(self, segment: SimulatedSegment, stream: SimulatedStream) -> None:
        self.segment = segment
        self.hosted = segment.hosted
        self.stream = stream
        self._owes_end = False
        self._last_message_at = segment.broker.world.now
        self._closed = False
        if segment.replica_server is not None:
            segment.replica_server.close()
        segment.replica_server = self
        with self.hosted:
            self.hosted.primary_stream_opened()
        stream.on_server_message = self.on_message
        if self.hosted.machine.state in ENDED:
            self._fail(SegmentSealed(f"{segment.name} is {self.hosted.machine.state}"))
        else:
            stream.down(("hello", self.hosted.machine.durable_end, self.hosted.memory.credit))

    def on_message(self, message: Any) -> None:
        self._last_message_at = self.segment.broker.world.now
        match message:
            case ReplicationMessage():
                before = self.hosted.machine.end
                try:
                    with self.hosted as machine:
                        machine.replicate(message)
                except (OffsetMismatch, SegmentSealed) as error:
                    self._fail(error)
                    return
                self.segment.broker.checker.replicated(self.segment, before)
                self._owes_end = True
                self.segment.write_journal()
                self.report_end()
            case "ping":
                self.stream.down(("end", self.hosted.machine.durable_end))
            case None:
                self.close()

    def report_end(self) -> None:
        """Replies to the last message once the journal has its entries."""
        machine = self.hosted.machine
        if self._owes_end and machine.durable_end == machine.end:
            self._owes_end = False
            self.stream.down(("end", machine.durable_end))

    def tick(self) -> None:
        """A primary that sends not even heartbeats is lost."""
        if self.segment.broker.world.now - self._last_message_at > 2 * SECOND:
            self.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with self.hosted:
                self.hosted.primary_stream_closed()

    def _fail(self, error: SmqError) -> None:
        self.stream.down(error)
        self.stream.end()
        self.close()
