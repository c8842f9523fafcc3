"""A simulated producer: batches cut by segment, lanes with streams, and outcomes of sealed segments."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from smq_core.errors import ProducerFenced, SegmentSealed, SmqError, UnknownSegment
from smq_core.invariants import Message
from smq_core.keyspace import partition_of
from smq_core.leading import accepting
from smq_core.model import Layout, SealOutcome
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
        self._serial = 0
        self._message = 0
        self._streams: dict[str, Stream] = {}
        self._heard_at: dict[str, int] = {}
        self._retry_at: dict[str, int] = {}
        self._asking: set[str] = set()
        self.process.start(self._send())
        self.process.start(self._drive())

    @property
    def idle(self) -> bool:
        return self.batches == 0 and not self.waiting and all(lane.idle for lane in self.lanes.lanes.values())

    # ---- what it sends

    def _send(self) -> Steps:
        world = self.world
        while self.batches and not self.stopped:
            yield world.between(5 * MS, self.history.pace)
            if self._in_hand() > 30:
                continue
            self.batches -= 1
            self._serial += 1
            self.waiting.append(Piece(self._serial, tuple(self._make() for _ in range(world.between(1, 4)))))
            self._route()

    def _make(self) -> Message:
        key = f"k{self.world.between(0, self.history.keys)}"
        partition = partition_of(key.encode(), self.history.settings.partitions)
        self._message += 1
        message = Message(self.name, self._message, key, partition, self.world.now)
        self.checker.sent(message)
        return message

    def _in_hand(self) -> int:
        return len(self.waiting) + sum(len(x.queue) + len(x.in_flight) for x in self.lanes.lanes.values())

    def _route(self) -> None:
        """Cuts what waits by the segments that accept, in the order of the batches."""
        if self.layout is None:
            return
        pieces, self.waiting = sorted(self.waiting), []
        for segment in accepting(self.layout):
            parts = [part for piece in pieces if (part := piece.cut(segment.range)) is not None]
            if not parts:
                continue
            lane = self.lanes.lane(segment)
            if lane.state is LaneState.DONE:
                self.waiting += parts  # a newer layout has the successors
                continue
            lane.queue = deque(sorted([*lane.queue, *parts], key=_serial))
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
            living = {s.name for s in layout.segments} | {p for s in layout.segments for p in s.predecessors}
            self.lanes.know(layout.segments)
            self.lanes.drop_done(living)
            self._route()

    def _look_after(self, name: str, lane: Lane) -> None:
        now = self.world.now
        if lane.state is LaneState.STREAMING or name in self._streams:
            if now - self._heard_at[name] > 2 * SECOND:
                self._broke(name, lane)
            return
        if lane.idle or lane.state is LaneState.DONE:
            return
        assert self.layout is not None
        known = {s.name: s for s in self.layout.segments}
        if name not in known or known[name].successors:
            self._ask_outcome(name, lane)
        if now >= self._retry_at.get(name, 0) and self.lanes.may_open(lane):
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
                self._resolve(name, lane, outcome)
            case ProducerFenced():
                self._stop()
            case SmqError() | None:
                if isinstance(message, SegmentSealed):
                    self._ask_outcome(name, lane)
                self._broke(name, lane)
        self._pump(lane)

    def _pump(self, lane: Lane) -> None:
        stream = self._streams.get(lane.segment.name)
        while stream is not None and (sent := lane.to_send()) is not None:
            piece = sent.piece
            assert isinstance(piece, Piece)
            stream.up(incoming(piece, BatchId(self.producer, self.epoch, sent.sequence)))

    def _broke(self, name: str, lane: Lane) -> None:
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

    def _ask_outcome(self, name: str, lane: Lane) -> None:
        if name not in self._asking:
            self._asking.add(name)
            self.process.start(self._learn(name, lane))

    def _learn(self, name: str, lane: Lane) -> Steps:
        try:
            outcome = yield self.network.call(self.process, self.history.any_broker(), "outcome", name)
        except (SmqError, UnknownSegment):
            yield self.world.between(50 * MS, 200 * MS)
        else:
            self._resolve(name, lane, outcome)
        self._asking.discard(name)

    def _resolve(self, name: str, lane: Lane, outcome: SealOutcome) -> None:
        """All of the segment's batches are settled by its outcome; what is not in it goes on, in order."""
        if lane.state is LaneState.DONE:
            return
        stream = self._streams.pop(name, None)
        if stream is not None:
            stream.leave()
        try:
            delivered, again = lane.resolve(outcome.producers.get(self.producer), self.epoch)
        except ProducerFenced:
            self._stop()
            return
        for one in delivered:
            self._delivered(one)
        assert all(isinstance(piece, Piece) for piece in again)
        self.waiting += again  # type: ignore[arg-type]
        self._route()

    def _delivered(self, delivered: Any) -> None:
        self.checker.acked_to(self, delivered)


def _serial(piece: object) -> int:
    assert isinstance(piece, Piece)
    return piece.serial
