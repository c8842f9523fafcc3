"""A simulated producer: partitioning by segment, send queues with streams, and outcomes of sealed segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq_core.errors import ProducerFenced, SegmentSealed, SmqError
from smq_core.invariants import Message
from smq_core.model.entities import Layout, SealOutcome, Segment
from smq_core.model.keyspace import partition_of
from smq_core.producing.send_queue import SendQueue, SendQueues, SendQueueState
from smq_core.reconcile.topic_reconciler import writable_segments
from smq_core.replica.producer_map import BatchId
from support.sim.brokers.hosted_segment import incoming
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, SECOND, Process, Steps

if TYPE_CHECKING:
    from support.sim.histories.protocol import History


class SimulatedProducer:
    """One start of a producer. ``batches`` are not sent yet. ``stopped``: a newer epoch fenced it."""

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
        self.send_queues = SendQueues(epoch=epoch)
        self.layout: Layout | None = None
        self.batches = batches
        self.stopped = False
        self.zombie = False
        self.waiting: list[SimulatedSubBatch] = []
        self.route: dict[int, Segment] = {}
        self._serial = 0
        self._message = 0
        self._streams: dict[str, SimulatedStream] = {}
        self._last_reply_at: dict[str, int] = {}
        self._retry_at: dict[str, int] = {}
        self._requested_outcomes: set[str] = set()
        self._outcomes: dict[str, SealOutcome] = {}
        self._free: set[str] = set()
        """Send queues whose streams are open for sending."""
        self.process.start(self._send())
        self.process.start(self._drive())

    @property
    def idle(self) -> bool:
        return (
            self.batches <= 0
            and not self.waiting
            and all(send_queue.idle for send_queue in self.send_queues.send_queues.values())
        )

    # ---- batches

    def _send(self) -> Steps:
        world = self.world
        while self.batches > 0 and not self.stopped:
            yield world.between(5 * MS, self.history.send_interval)
            if self._has_unsent() > 30:
                continue
            self.batches -= 1
            self._serial += 1
            self.waiting.append(
                SimulatedSubBatch(self._serial, tuple(self._make() for _ in range(world.between(1, 4))))
            )
            self._enqueue()

    def _make(self) -> Message:
        key = f"k{self.world.between(0, self.history.keys)}"
        partition = partition_of(key.encode(), self.history.settings.partitions)
        self._message += 1
        message = Message(self.name, self._message, key, partition, self.world.now)
        self.checker.sent(message)
        return message

    def _has_unsent(self) -> int:
        return len(self.waiting) + sum(len(x.queue) + len(x.in_flight) for x in self.send_queues.send_queues.values())

    def _enqueue(self) -> None:
        """Partitions the waiting rows by the present segment of each partition."""
        if self.layout is None:
            return
        sub_batches, self.waiting = self.waiting, []
        for name, segment in {s.name: s for s in self.route.values()}.items():
            own = {partition for partition, s in self.route.items() if s.name == name}
            parts = [part for sub_batch in sub_batches if (part := sub_batch.cut(own)) is not None]
            if parts:
                send_queue = self.send_queues.send_queue(segment)
                send_queue.queue.extend(parts)
                self._pump(send_queue)

    # ---- the loop

    def _drive(self) -> Steps:
        while not self.stopped:
            if self.layout is None or self._check_errors():
                yield from self._locate()
            for name, send_queue in list(self.send_queues.send_queues.items()):
                self._maintain(name, send_queue)
            yield self.world.between(60 * MS, 140 * MS)

    def _check_errors(self) -> bool:
        """Some send queue has waiting rows and no stream."""
        return any(
            not send_queue.idle and send_queue.state is SendQueueState.CLOSED
            for send_queue in self.send_queues.send_queues.values()
        ) or bool(self.waiting)

    def _locate(self) -> Steps:
        try:
            layout = yield self.network.call(self.process, self.history.any_broker(), "locate", timeout=SECOND)
        except SmqError:
            return
        # An older layout would send rows back to a segment whose successors have newer rows.
        if self.layout is None or layout.version > self.layout.version:
            self.layout = layout
            self.send_queues.update_layout(layout.segments)
            self._advance()
            living = {s.name for s in layout.segments} | {p for s in layout.segments for p in s.predecessors}
            self.send_queues.discard_done(living)
            self._enqueue()
            self._open_ahead(layout)

    def _open_ahead(self, layout: Layout) -> None:
        """Sometimes opens a successor's stream before there is anything to send."""
        for segment in writable_segments(layout):
            streams = any(name in self._streams for name in segment.predecessors)
            if streams and segment.name not in self._streams and self.world.chance(0.5):
                self._open(segment.name, self.send_queues.send_queue(segment))

    def _advance(self) -> None:
        """Moves partitions of a sealed segment to successors, once the delivery state of batches in flight is known.

        Until then their rows wait in the old segment's send queue, so that none overtakes another.
        """
        assert self.layout is not None
        targets = {p: s for s in writable_segments(self.layout) for p in range(s.range.start, s.range.stop)}
        for name, segment in {s.name: s for s in self.route.values()}.items():
            if name in {s.name for s in targets.values()}:
                continue
            send_queue = self.send_queues.send_queues.get(name)
            outcome = self._outcomes.get(name)
            if send_queue is not None and send_queue.in_flight and outcome is None:
                self._request_outcome(name)
                continue
            again: list[object] = []
            if send_queue is not None:
                again = self._resolve(name, send_queue, outcome)
            for partition in range(segment.range.start, segment.range.stop):
                if self.route[partition].name == name:
                    self.route[partition] = targets[partition]
            assert all(isinstance(sub_batch, SimulatedSubBatch) for sub_batch in again)
            self.waiting = [*again, *self.waiting]  # type: ignore[list-item]
            self._enqueue()
        if not self.route:
            self.route = targets

    def _resolve(self, name: str, send_queue: SendQueue, outcome: SealOutcome | None) -> list[object]:
        """Completes the segment's batches by its outcome. Returns those that it does not contain, in order."""
        self._free.discard(name)
        stream = self._streams.pop(name, None)
        if stream is not None:
            stream.leave()
        known = outcome.producers.get(self.producer) if outcome is not None else None
        try:
            delivered, again = send_queue.resolve(known, self.epoch)
        except ProducerFenced:
            self._stop()
            return []
        for one in delivered:
            self._delivered(one)
        return again

    def _maintain(self, name: str, send_queue: SendQueue) -> None:
        now = self.world.now
        if send_queue.state is SendQueueState.STREAMING or name in self._streams:
            if now - self._last_reply_at[name] > 2 * SECOND:
                self._broke(name, send_queue)
            self._pump(send_queue)
            return
        if send_queue.idle or send_queue.state is SendQueueState.DONE or name in self._outcomes:
            return
        assert self.layout is not None
        known = {s.name: s for s in self.layout.segments}
        if name not in known or known[name].successors:
            self._request_outcome(name)
        if now >= self._retry_at.get(name, 0):
            self._open(name, send_queue)

    # ---- streams

    def _open(self, name: str, send_queue: SendQueue) -> None:
        primary = send_queue.segment.primary
        stream = SimulatedStream(
            self.network,
            self.process,
            primary.address,
            "produce",
            name,
            primary.incarnation,
            self.producer,
            self.epoch,
        )
        stream.on_client_message = lambda message: self._on_message(name, send_queue, stream, message)
        self._streams[name] = stream
        self._last_reply_at[name] = self.world.now

    def _on_message(self, name: str, send_queue: SendQueue, stream: SimulatedStream, message: Any) -> None:
        if self._streams.get(name) is not stream:
            return
        self._last_reply_at[name] = self.world.now
        match message:
            case ("opened", last):
                try:
                    send_queue.opened(last)
                except SmqError as error:
                    self.world.note(self.name, name, f"opened: {error}")
                    self._broke(name, send_queue)
            case ("ack", int(sequence), first):
                for delivered in send_queue.acked(sequence, [first]):
                    self._delivered(delivered)
            case ("sealed", SealOutcome() as outcome):
                self._on_outcome(name, outcome)
            case ProducerFenced():
                self._stop()
            case SmqError() | None:
                if isinstance(message, SegmentSealed):
                    self._request_outcome(name)
                self._broke(name, send_queue)
        self._pump(send_queue)

    def _pump(self, send_queue: SendQueue) -> None:
        stream = self._streams.get(send_queue.segment.name)
        if stream is None or not self._may_send(send_queue):
            return
        while (sent := send_queue.next_to_send()) is not None:
            sub_batch = sent.sub_batch
            assert isinstance(sub_batch, SimulatedSubBatch)
            stream.up(incoming(sub_batch, BatchId(self.producer, self.epoch, sent.sequence)))

    def _may_send(self, send_queue: SendQueue) -> bool:
        if send_queue.segment.name not in self._free and not send_queue.idle and self.send_queues.may_send(send_queue):
            self._free.add(send_queue.segment.name)
        return send_queue.segment.name in self._free

    def _broke(self, name: str, send_queue: SendQueue) -> None:
        self._free.discard(name)
        stream = self._streams.pop(name, None)
        if stream is not None:
            stream.leave()
        send_queue.stream_closed()
        self._retry_at[name] = self.world.now + self.world.between(20 * MS, 300 * MS)

    def _stop(self) -> None:
        """A newer epoch of this producer exists."""
        self.stopped = True
        self.batches = 0
        for stream in self._streams.values():
            stream.leave()
        self._streams.clear()

    # ---- outcomes

    def _request_outcome(self, name: str) -> None:
        if name not in self._requested_outcomes:
            self._requested_outcomes.add(name)
            self.process.start(self._learn(name))

    def _learn(self, name: str) -> Steps:
        try:
            outcome = yield self.network.call(self.process, self.history.any_broker(), "outcome", name)
        except SmqError:
            yield self.world.between(50 * MS, 200 * MS)
        else:
            self._on_outcome(name, outcome)
        self._requested_outcomes.discard(name)

    def _on_outcome(self, name: str, outcome: SealOutcome) -> None:
        send_queue = self.send_queues.send_queues.get(name)
        if send_queue is None or send_queue.state is SendQueueState.DONE or self.stopped:
            return
        self.checker.record_outcome(outcome, self.name)
        self._outcomes[name] = outcome
        self._broke(name, send_queue)
        self._advance()

    def _delivered(self, delivered: Any) -> None:
        self.checker.acked_to(self, delivered)
