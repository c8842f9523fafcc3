"""Primary and follower: one stream per (segment, follower), which is reopened after a short pause when it breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq_core.errors import NotHosted, OffsetMismatch, SegmentSealed, SmqError, WrongIncarnation
from smq_core.model.entities import Replica
from smq_core.replica.log_entries import ReplicationMessage
from smq_core.replica.segment_replica import ReplicaState
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, SECOND

if TYPE_CHECKING:
    from support.sim.brokers.hosted_segment import SimulatedSegment

UNRESPONSIVE_AFTER = 500 * MS


class ReplicaLink:
    """The primary's side of one stream."""

    def __init__(self, hosted: SimulatedSegment, follower: Replica) -> None:
        self.hosted = hosted
        self.follower = follower
        self.stream: SimulatedStream | None = None
        self.last_message_at = hosted.broker.world.now
        self._sent_at = 0
        self._owed_since: int | None = None
        """Since when the follower has owed an answer."""
        self._stopped = False
        self.connect()

    def connect(self) -> None:
        if self._stopped or self.hosted.machine.state in (ReplicaState.FENCED, ReplicaState.SEALED):
            return
        broker, name = self.hosted.broker, self.hosted.name
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
        machine = self.hosted.machine
        self.last_message_at, self._owed_since = self.hosted.broker.world.now, None
        match message:
            case ("hello", int(end), int(credit)):
                try:
                    machine.follower_connected(self.follower.incarnation, end, credit)
                except OffsetMismatch:
                    self.broke(stream)
            case ("end", int(end)):
                machine.follower_acked(self.follower.incarnation, end)
            case SegmentSealed():
                self.hosted.seal()
            case ("sealed",) | None | SmqError():
                self.broke(stream)
        self.hosted.pump()

    def send(self) -> None:
        """Sends all that is pending for this follower."""
        stream = self.stream
        while stream is not None:
            message = self.hosted.machine.replication_for(self.follower.incarnation, max_bytes=1000)
            if message is None:
                return
            self._expects_reply()
            stream.up(message)

    def _expects_reply(self) -> None:
        self._sent_at = self.hosted.broker.world.now
        self._owed_since = self._owed_since or self._sent_at

    def tick(self) -> None:
        now = self.hosted.broker.world.now
        if self.stream is None:
            return
        if now - self.last_message_at > 2 * SECOND and now - self._sent_at > 500 * MS:
            self.broke(self.stream)
        elif now - self._sent_at > SECOND:
            self._expects_reply()
            self.stream.up("ping")

    @property
    def unresponsive(self) -> bool:
        since = self._owed_since
        return since is not None and self.hosted.broker.world.now - since > UNRESPONSIVE_AFTER

    def broke(self, stream: SimulatedStream) -> None:
        if stream is not self.stream:
            return
        self.stream = None
        stream.leave()
        self.hosted.machine.follower_disconnected(self.follower.incarnation)
        broker = self.hosted.broker
        broker.process.after(broker.world.between(50 * MS, 400 * MS), self.connect)

    def stop(self) -> None:
        """The segment is sealed: makes the follower check the chain."""
        self._stopped = True
        if self.stream is not None:
            self.stream.up(("sealed",))
            self.stream.leave()
            self.stream = None


class ReplicaServer:
    """The follower's side of one stream."""

    def __init__(self, hosted: SimulatedSegment, stream: SimulatedStream) -> None:
        self.hosted = hosted
        self.stream = stream
        self._owes_end = False
        hosted.replica_server = self
        stream.on_server_message = self.on_message
        if hosted.machine.state in (ReplicaState.FENCED, ReplicaState.SEALED):
            self._fail(SegmentSealed(f"{hosted.name} is {hosted.machine.state}"))
        else:
            stream.down(("hello", hosted.machine.durable_end, hosted.broker.settings.credit))

    def on_message(self, message: Any) -> None:
        hosted = self.hosted
        hosted.primary_seen_at = hosted.broker.world.now
        match message:
            case ReplicationMessage():
                before = hosted.machine.end
                try:
                    hosted.machine.replicate(message)
                except (OffsetMismatch, SegmentSealed) as error:
                    self._fail(error)
                    return
                hosted.broker.checker.replicated(hosted, before)
                if hosted.journal is not None:
                    hosted.journal.pump()
                self._owes_end = True
                self.report_end()
            case "ping":
                self.stream.down(("end", hosted.machine.durable_end))
            case ("sealed",):
                hosted.start_seal_search()

    def report_end(self) -> None:
        """Replies to the last message once the journal has its entries."""
        machine = self.hosted.machine
        if self._owes_end and machine.durable_end == machine.end:
            self._owes_end = False
            self.stream.down(("end", machine.durable_end))

    def _fail(self, error: SmqError) -> None:
        self.stream.down(error)
        self.stream.end()


def refuse(error: NotHosted | WrongIncarnation, stream: SimulatedStream) -> None:
    stream.down(error)
    stream.end()
