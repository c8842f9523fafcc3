"""A simulated producer: batches cut by segment, lanes with streams, and outcomes of sealed segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq_core.errors import ProducerFenced, SegmentSealed, SmqError
from smq_core.invariants import Message
from smq_core.keyspace import partition_of
from smq_core.leading import accepting
from smq_core.model import Layout, SealOutcome, Segment
from smq_core.producers import BatchId
from smq_core.producing import Lane, Lanes, LaneState
from support.sim.holding import incoming
from support.sim.messages import Piece
from support.sim.network import Stream
from support.sim.world import MS, SECOND, Process, Steps

if TYPE_CHECKING:
    from support.sim.history import History


class Producer:
    """One life of a producer. ``batches`` are still to be sent; ``stopped`` when a newer epoch fenced it."""

    def __init__(self, history: History, name: str, epoch: int, batches: int) -> None:
        self.history = history
        self.world = history.world
        self.network = history.network
        self.checker = history.checker
        self.producer = name
        self.epoch = epoch
        self.name = f"{name}.{epoch}"
        self.process = Process(self.world, self.name, self.name)
        self.process.node = self
        self.lanes = Lanes(epoch=epoch)
        self.layout: Layout | None = None
        self.batches = batches
        self.stopped = False
        self.zombie = False
        self.waiting: list[Piece] = []
        self.route: dict[int, Segment] = {}
        self._serial = 0
        self._message = 0
        self._streams: dict[str, Stream] = {}
        self._heard_at: dict[str, int] = {}
        self._retry_at: dict[str, int] = {}
        self._asking: set[str] = set()
        self._told: dict[str, SealOutcome] = {}
        self._free: set[str] = set()
        """Lanes that may send on their present streams."""
        self.process.start(self._send())
        self.process.start(self._drive())

    @property
    def idle(self) -> bool:
        return self.batches <= 0 and not self.waiting and all(lane.idle for lane in self.lanes.lanes.values())

    # ---- what it sends

    def _send(self) -> Steps:
        world = self.world
        while self.batches > 0 and not self.stopped:
            yield world.between(5 * MS, self.history.pace)
            if self._in_hand() > 30:
                continue
            self.batches -= 1
            self._serial += 1
            self.waiting.append(Piece(self._serial, tuple(self._make() for _ in range(world.between(1, 4)))))
            self._enqueue()

    def _make(self) -> Message:
        key = f"k{self.world.between(0, self.history.keys)}"
        partition = partition_of(key.encode(), self.history.settings.partitions)
        self._message += 1
        message = Message(self.name, self._message, key, partition, self.world.now)
        self.checker.sent(message)
        return message

    def _in_hand(self) -> int:
        return len(self.waiting) + sum(len(x.queue) + len(x.in_flight) for x in self.lanes.lanes.values())

    def _enqueue(self) -> None:
        """Cuts what waits by where each partition goes at present."""
        if self.layout is None:
            return
        pieces, self.waiting = self.waiting, []
        for name, segment in {s.name: s for s in self.route.values()}.items():
            own = {partition for partition, s in self.route.items() if s.name == name}
            parts = [part for piece in pieces if (part := piece.cut(own)) is not None]
            if parts:
                lane = self.lanes.lane(segment)
                lane.queue.extend(parts)
                self._pump(lane)

    # ---- its loop

    def _drive(self) -> Steps:
        while not self.stopped:
            if self.layout is None or self._troubled():
                yield from self._locate()
            for name, lane in list(self.lanes.lanes.items()):
                self._look_after(name, lane)
            yield self.world.between(60 * MS, 140 * MS)

    def _troubled(self) -> bool:
        """Something waits in a lane without a stream."""
        return any(not lane.idle and lane.state is LaneState.CLOSED for lane in self.lanes.lanes.values()) or bool(
            self.waiting
        )

    def _locate(self) -> Steps:
        try:
            layout = yield self.network.call(self.process, self.history.any_broker(), "locate", timeout=SECOND)
        except SmqError:
            return
        # An older layout than the one known would send rows back to a segment whose successors have newer ones.
        if self.layout is None or layout.version > self.layout.version:
            self.layout = layout
            self.lanes.know(layout.segments)
            self._advance()
            living = {s.name for s in layout.segments} | {p for s in layout.segments for p in s.predecessors}
            self.lanes.drop_done(living)
            self._enqueue()
            self._open_ahead(layout)

    def _open_ahead(self, layout: Layout) -> None:
        """Now and then a successor gets its stream before anything is to be sent there."""
        for segment in accepting(layout):
            streams = any(name in self._streams for name in segment.predecessors)
            if streams and segment.name not in self._streams and self.world.chance(0.5):
                self._open(segment.name, self.lanes.lane(segment))

    def _advance(self) -> None:
        """Partitions whose segment accepts no more go on, as soon as the fate of what is in flight there is known.

        Until then their rows wait in the old segment's lane, so that none overtakes another.
        """
        assert self.layout is not None
        targets = {p: s for s in accepting(self.layout) for p in range(s.range.start, s.range.stop)}
        for name, segment in {s.name: s for s in self.route.values()}.items():
            if name in {s.name for s in targets.values()}:
                continue
            lane = self.lanes.lanes.get(name)
            outcome = self._told.get(name)
            if lane is not None and lane.in_flight and outcome is None:
                self._ask_outcome(name)
                continue
            again: list[object] = []
            if lane is not None:
                again = self._settle(name, lane, outcome)
            for partition in range(segment.range.start, segment.range.stop):
                if self.route[partition].name == name:
                    self.route[partition] = targets[partition]
            assert all(isinstance(piece, Piece) for piece in again)
            self.waiting = [*again, *self.waiting]  # type: ignore[list-item]
            self._enqueue()
        if not self.route:
            self.route = targets

    def _settle(self, name: str, lane: Lane, outcome: SealOutcome | None) -> list[object]:
        """All of the segment's batches are settled by its outcome; returns what is not in it, in order."""
        self._free.discard(name)
        stream = self._streams.pop(name, None)
        if stream is not None:
            stream.leave()
        known = outcome.producers.get(self.producer) if outcome is not None else None
        try:
            delivered, again = lane.resolve(known, self.epoch)
        except ProducerFenced:
            self._stop()
            return []
        for one in delivered:
            self._delivered(one)
        return again

    def _look_after(self, name: str, lane: Lane) -> None:
        now = self.world.now
        if lane.state is LaneState.STREAMING or name in self._streams:
            if now - self._heard_at[name] > 2 * SECOND:
                self._broke(name, lane)
            self._pump(lane)
            return
        if lane.idle or lane.state is LaneState.DONE or name in self._told:
            return
        assert self.layout is not None
        known = {s.name: s for s in self.layout.segments}
        if name not in known or known[name].successors:
            self._ask_outcome(name)
        if now >= self._retry_at.get(name, 0):
            self._open(name, lane)

    # ---- streams

    def _open(self, name: str, lane: Lane) -> None:
        primary = lane.segment.primary
        stream = Stream(
            self.network,
            self.process,
            primary.address,
            "produce",
            name,
            primary.incarnation,
            self.producer,
            self.epoch,
        )
        stream.client_hears = lambda message: self._hear(name, lane, stream, message)
        self._streams[name] = stream
        self._heard_at[name] = self.world.now

    def _hear(self, name: str, lane: Lane, stream: Stream, message: Any) -> None:
        if self._streams.get(name) is not stream:
            return
        self._heard_at[name] = self.world.now
        match message:
            case ("opened", last):
                try:
                    lane.opened(last)
                except SmqError as error:
                    self.world.tell(self.name, name, f"opened: {error}")
                    self._broke(name, lane)
            case ("ack", int(sequence), first):
                for delivered in lane.acked(sequence, [first]):
                    self._delivered(delivered)
            case ("sealed", SealOutcome() as outcome):
                self._heard_outcome(name, outcome)
            case ProducerFenced():
                self._stop()
            case SmqError() | None:
                if isinstance(message, SegmentSealed):
                    self._ask_outcome(name)
                self._broke(name, lane)
        self._pump(lane)

    def _pump(self, lane: Lane) -> None:
        stream = self._streams.get(lane.segment.name)
        if stream is None or not self._may_send(lane):
            return
        while (sent := lane.to_send()) is not None:
            piece = sent.piece
            assert isinstance(piece, Piece)
            stream.up(incoming(piece, BatchId(self.producer, self.epoch, sent.sequence)))

    def _may_send(self, lane: Lane) -> bool:
        if lane.segment.name not in self._free and not lane.idle and self.lanes.may_send(lane):
            self._free.add(lane.segment.name)
        return lane.segment.name in self._free

    def _broke(self, name: str, lane: Lane) -> None:
        self._free.discard(name)
        stream = self._streams.pop(name, None)
        if stream is not None:
            stream.leave()
        lane.broke()
        self._retry_at[name] = self.world.now + self.world.between(20 * MS, 300 * MS)

    def _stop(self) -> None:
        """A newer epoch of this producer exists."""
        self.stopped = True
        self.batches = 0
        for stream in self._streams.values():
            stream.leave()
        self._streams.clear()

    # ---- outcomes

    def _ask_outcome(self, name: str) -> None:
        if name not in self._asking:
            self._asking.add(name)
            self.process.start(self._learn(name))

    def _learn(self, name: str) -> Steps:
        try:
            outcome = yield self.network.call(self.process, self.history.any_broker(), "outcome", name)
        except SmqError:
            yield self.world.between(50 * MS, 200 * MS)
        else:
            self._heard_outcome(name, outcome)
        self._asking.discard(name)

    def _heard_outcome(self, name: str, outcome: SealOutcome) -> None:
        lane = self.lanes.lanes.get(name)
        if lane is None or lane.state is LaneState.DONE or self.stopped:
            return
        self.checker.told(outcome, self.name)
        self._told[name] = outcome
        self._broke(name, lane)
        self._advance()

    def _delivered(self, delivered: Any) -> None:
        self.checker.acked_to(self, delivered)
