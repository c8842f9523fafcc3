"""One segment on one simulated broker: the glue around ``SegmentReplica``, in the order that the protocol states.

Fence, wait for a chunk in flight, run the sealer, then tell: nobody hears of an outcome before the seal chunk exists.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from smq_core import sealer
from smq_core.entries import Incoming, ReplicaConfig
from smq_core.errors import SegmentSealed, SmqError, StoreUnavailable
from smq_core.model import Segment
from smq_core.replica import SegmentReplica, State
from smq_core.sealer import Held
from support.sim.chain import Chain
from support.sim.messages import Piece
from support.sim.network import Stream
from support.sim.replication import ReplicaLink
from support.sim.world import MS, SECOND, Future, Steps

if TYPE_CHECKING:
    from support.sim.broker import Broker

SLICES = 64


class ProducerStream:
    """A producer's stream at the primary. What came waits in ``inbox`` while memory is short: it is not read on."""

    def __init__(self, holding: Holding, stream: Stream, producer: str, epoch: int) -> None:
        self.holding = holding
        self.stream = stream
        self.producer = producer
        self.epoch = epoch
        self.inbox: deque[Incoming] = deque()
        self.entered = False
        stream.server_hears = self.hear

    def hear(self, message: Any) -> None:
        if message is None:
            self.close()
            return
        self.inbox.append(message)
        self.read_on()
        self.holding.pump()

    def read_on(self) -> None:
        holding = self.holding
        while self.inbox and self._enters() and holding.has_room(self.inbox[0].nbytes):
            batch = self.inbox.popleft()
            try:
                entry = holding.machine.append(self.stream, batch, holding.broker.clock())
            except SmqError as error:
                if holding.machine.state in (State.FENCED, State.SEALED):
                    return  # it hears the outcome when there is one
                self.stream.down(error)
                self.close()
                return
            if entry is not None:
                holding.count(batch.payload)
                holding.broker.checker.appended(holding, entry)

    def _enters(self) -> bool:
        """At a successor that waited when the stream came, its first batch waits until the segment is open."""
        if not self.entered and self.holding.machine.state is not State.WAITING:
            try:
                self.holding.machine.producer_opens(self.producer, self.epoch)
                self.entered = True
            except SegmentSealed:
                return False
            except SmqError as error:
                self.stream.down(error)
                self.close()
        return self.entered

    def close(self) -> None:
        self.inbox.clear()
        self.stream.end()
        if self in self.holding.streams:
            self.holding.streams.remove(self)


class Holding:
    def __init__(self, broker: Broker, segment: Segment) -> None:
        settings = broker.settings
        self.broker = broker
        self.process = broker.process
        self.segment = segment
        self.name = segment.name
        self.chain = Chain(broker.store, broker.process, segment.name, settings.patience)
        self.machine = SegmentReplica(
            ReplicaConfig(
                segment=segment.name,
                range=segment.range,
                me=broker.incarnation,
                replicas=tuple(r.incarnation for r in segment.replicas),
                durability=segment.durability,
                predecessors=segment.predecessors,
                flush_bytes=settings.flush_bytes,
                flush_interval=settings.flush_interval,
            )
        )
        self.streams: list[ProducerStream] = []
        self.links: list[ReplicaLink] = []
        self.sealing: Future | None = None
        self.chunk_done = Future()
        self.heard_primary_at = broker.world.now
        self.histogram = [0] * min(SLICES, len(segment.range))
        self._replicating = False
        self._looking = False

    def start(self) -> None:
        if self.machine.config.is_primary:
            for name in self.segment.predecessors:
                self.process.start(self._read_predecessor(name))
            self.links = [ReplicaLink(self, replica) for replica in self.segment.replicas[1:]]

    # ---- load and memory

    def count(self, piece: Any) -> None:
        """Messages per equal slice of the range, as the leader is told."""
        start, size, slices = self.segment.range.start, len(self.segment.range), len(self.histogram)
        for message in piece.messages:
            self.histogram[(message.partition - start) * slices // size] += 1

    def has_room(self, nbytes: int) -> bool:
        """A batch is always let in when the tail is empty."""
        if not self.machine.tail:
            return True
        return self.machine.room() >= nbytes and self.broker.primaries_room() >= nbytes

    # ---- whenever something has changed

    def pump(self, *, flush: bool = False) -> None:
        machine = self.machine
        for stream in list(self.streams):
            if stream.inbox:
                stream.read_on()
        for ack in machine.take_acks():
            self.broker.checker.acked(self, ack)
            assert isinstance(ack.stream, Stream)
            ack.stream.down(("ack", ack.id.sequence, ack.first_offset))
        chunk = machine.next_chunk(self.broker.clock(), force=flush)
        if chunk is not None:
            self.process.start(self._write(chunk))
        if self.links and not self._replicating:
            self._replicating = True
            self.process.after(self.broker.world.between(1 * MS, 20 * MS), self._replicate)

    def tick(self) -> None:
        if self.machine.state is State.SEALED:
            return
        for link in self.links:
            link.tick()
        silent = self.broker.world.now - self.heard_primary_at > 2 * SECOND
        if not self.machine.config.is_primary and silent:
            self.look_for_seal()
        self.pump()
        self.broker.checker.looked_at(self)

    def heartbeat(self) -> None:
        for stream in self.streams:
            stream.stream.down(("heartbeat",))

    def _replicate(self) -> None:
        self._replicating = False
        for link in self.links:
            link.send()

    # ---- the chain

    def _write(self, chunk: Any) -> Steps:
        """While nothing is clear it is the same chunk under the same nonce: an earlier attempt may still land."""
        nonce = self.broker.world.unique("n")
        mine: bool | None = None
        while mine is None:
            try:
                mine = yield from self.chain.write(chunk, nonce)
            except StoreUnavailable:
                if self.machine.state is not State.OPEN:
                    break
                yield 100 * MS
        if mine is None:
            self.machine.chunk_failed()
        elif mine:
            self.machine.chunk_written(chunk)
        else:
            self.machine.chunk_taken()
            self.seal()
        done, self.chunk_done = self.chunk_done, Future()
        done.set()
        self.pump()

    def _read_predecessor(self, name: str) -> Steps:
        """The segment opens only when this process has itself read every predecessor's seal chunk."""
        chain = Chain(self.broker.store, self.process, name)
        start = 0
        while self.machine.state is State.WAITING:
            try:
                info = yield from chain.info(start)
            except StoreUnavailable:
                info = None
            if info is not None and info.sealed:
                self.machine.predecessor_sealed(name)
                self.broker.world.tell(self.process.name, self.name, f"read the seal of {name}: {self.machine.state}")
            elif info is not None:
                start = info.end
                continue
            yield self.broker.world.between(30 * MS, 150 * MS)
            if name not in self.machine.unread_predecessors:
                return

    # ---- sealing

    def seal(self) -> Future:
        """Seals once; whoever asks waits for the same end."""
        if self.sealing is None:
            self.broker.world.tell(self.process.name, self.name, f"fenced at {self.machine.end}, seals")
            self.sealing = self.process.start(self._seal())
        return self.sealing

    def _seal(self) -> Steps:
        self.machine.fence()
        while self.machine.chunk_in_flight:
            yield self.chunk_done
        while True:
            try:
                outcome = yield from self.chain.drive(sealer.seal(self.name, Held.of(self.machine)))
                break
            except StoreUnavailable:
                yield 200 * MS
        self.ended(outcome)
        return outcome

    def ended(self, outcome: Any) -> None:
        """The seal chunk exists: let go of the tail and tell everybody."""
        if self.machine.state is State.SEALED:
            return
        self.machine.fence()
        self.machine.sealed(outcome)
        self.tell(outcome)

    def tell(self, outcome: Any) -> None:
        self.broker.checker.told(outcome, self.process.name)
        for stream in list(self.streams):
            stream.stream.down(("sealed", outcome))
            stream.close()
        for link in self.links:
            link.stop()

    def look_for_seal(self) -> None:
        """Somebody else may have sealed the segment: look whether it has ended."""
        if not self._looking and self.sealing is None:
            self._looking = True
            self.process.start(self._look_for_seal())

    def _look_for_seal(self) -> Steps:
        try:
            outcome = yield from self.chain.find_seal(self.machine.chain_end)
            if outcome is not None:
                self.ended(outcome)
            else:
                yield SECOND
        except StoreUnavailable:
            yield SECOND
        self._looking = False

    # ---- streams from producers

    def take_producer(self, stream: Stream, producer: str, epoch: int) -> None:
        """Answers, or refuses. A successor that waits to open holds nothing of any producer."""
        if self.machine.state is State.SEALED:
            stream.down(("sealed", self.machine.outcome))
            stream.end()
            return
        served = ProducerStream(self, stream, producer, epoch)
        if self.machine.state is State.FENCED:
            self.streams.append(served)
            return
        last = None
        if self.machine.state is State.OPEN:
            try:
                last = self.machine.producer_opens(producer, epoch)
                served.entered = True
            except SmqError as error:
                stream.down(error)
                served.close()
                return
        self.streams.append(served)
        stream.down(("opened", last))

    def read_tail(self, offset: int) -> tuple[Any, ...]:
        machine = self.machine
        if machine.state is State.SEALED:
            self.broker.checker.told(machine.outcome, self.process.name)
            return ("sealed", machine.outcome)
        if offset < machine.tail_start:
            return ("trimmed", machine.tail_start)
        entries = machine.readable(offset, 1000)
        self.broker.checker.served(self, entries)
        return ("rows", entries)


def incoming(piece: Piece, id_: Any) -> Incoming:
    partitions = piece.partitions
    return Incoming(id_, len(piece.messages), piece.nbytes, min(partitions), max(partitions), piece)
