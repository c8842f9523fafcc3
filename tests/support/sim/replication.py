"""Primary and follower: one stream per (segment, follower), opened again with a short pause when it breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq_core.entries import ReplicationMessage
from smq_core.errors import NotAtEnd, NotHeld, SegmentSealed, SmqError, WrongIncarnation
from smq_core.model import Replica
from smq_core.replica import State
from support.sim.network import Stream
from support.sim.world import MS, SECOND

if TYPE_CHECKING:
    from support.sim.holding import Holding

SILENT_AFTER = 500 * MS


class ReplicaLink:
    """The primary's side."""

    def __init__(self, holding: Holding, follower: Replica) -> None:
        self.holding = holding
        self.follower = follower
        self.stream: Stream | None = None
        self.heard_at = holding.broker.world.now
        self._sent_at = 0
        self._owed_since: int | None = None
        """Since when an answer is waited for."""
        self._stopped = False
        self.connect()

    def connect(self) -> None:
        if self._stopped or self.holding.machine.state in (State.FENCED, State.SEALED):
            return
        broker, name = self.holding.broker, self.holding.name
        stream = Stream(
            broker.network,
            broker.process,
            self.follower.address,
            "replica",
            name,
            self.follower.incarnation,
            broker.incarnation,
        )
        self.stream = stream
        self._asks()
        stream.client_hears = lambda message: self.hear(stream, message)

    def hear(self, stream: Stream, message: Any) -> None:
        machine = self.holding.machine
        self.heard_at, self._owed_since = self.holding.broker.world.now, None
        match message:
            case ("hello", int(end), int(credit)):
                try:
                    machine.follower_connected(self.follower.incarnation, end, credit)
                except NotAtEnd:
                    self.broke(stream)
            case ("end", int(end)):
                machine.follower_acked(self.follower.incarnation, end)
            case SegmentSealed():
                self.holding.seal()
            case ("sealed",) | None | SmqError():
                self.broke(stream)
        self.holding.pump()

    def send(self) -> None:
        """All that waits for this follower."""
        stream = self.stream
        while stream is not None:
            message = self.holding.machine.replication_for(self.follower.incarnation, max_bytes=1000)
            if message is None:
                return
            self._asks()
            stream.up(message)

    def _asks(self) -> None:
        self._sent_at = self.holding.broker.world.now
        self._owed_since = self._owed_since or self._sent_at

    def tick(self) -> None:
        now = self.holding.broker.world.now
        if self.stream is None:
            return
        if now - self.heard_at > 2 * SECOND and now - self._sent_at > 500 * MS:
            self.broke(self.stream)
        elif now - self._sent_at > SECOND:
            self._asks()
            self.stream.up("ping")

    @property
    def silent(self) -> bool:
        since = self._owed_since
        return since is not None and self.holding.broker.world.now - since > SILENT_AFTER

    def broke(self, stream: Stream) -> None:
        if stream is not self.stream:
            return
        self.stream = None
        stream.leave()
        self.holding.machine.follower_lost(self.follower.incarnation)
        broker = self.holding.broker
        broker.process.after(broker.world.between(50 * MS, 400 * MS), self.connect)

    def stop(self) -> None:
        """The segment is sealed: the follower is told to look at the chain."""
        self._stopped = True
        if self.stream is not None:
            self.stream.up(("sealed",))
            self.stream.leave()
            self.stream = None


class ReplicaServer:
    """The follower's side of one stream."""

    def __init__(self, holding: Holding, stream: Stream) -> None:
        self.holding = holding
        self.stream = stream
        stream.server_hears = self.hear
        if holding.machine.state in (State.FENCED, State.SEALED):
            self._fail(SegmentSealed(f"{holding.name} is {holding.machine.state}"))
        else:
            stream.down(("hello", holding.machine.end, holding.broker.settings.credit))

    def hear(self, message: Any) -> None:
        holding = self.holding
        holding.heard_primary_at = holding.broker.world.now
        match message:
            case ReplicationMessage():
                before = holding.machine.end
                try:
                    end = holding.machine.replicate(message)
                except (NotAtEnd, SegmentSealed) as error:
                    self._fail(error)
                    return
                holding.broker.checker.replicated(holding, before)
                self.stream.down(("end", end))
            case "ping":
                self.stream.down(("end", holding.machine.end))
            case ("sealed",):
                holding.look_for_seal()

    def _fail(self, error: SmqError) -> None:
        self.stream.down(error)
        self.stream.end()


def refuse(error: NotHeld | WrongIncarnation, stream: Stream) -> None:
    stream.down(error)
    stream.end()
