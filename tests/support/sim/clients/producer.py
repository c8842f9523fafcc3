"""A simulated producer: partitioning by segment, send queues with streams, and outcomes of sealed segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq_core.errors import ProducerFenced, SegmentSealed, SequenceGap, SmqError
from smq_core.invariants import Message, Violation
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Layout, Segment
from smq_core.model.keyspace import partition_of
from smq_core.producing.send_queue import SendQueue, SendQueues, SendQueueState
from smq_core.replica.log_entries import BatchId
from smq_core.replica.producer_sessions import OpenedProducer
from support.sim.brokers.hosted_segment import incoming
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, SECOND, Process, Steps

if TYPE_CHECKING:
    from support.sim.histories.protocol import History


class SimulatedProducer:
    """One start of a producer. ``batches`` are not sent yet. ``stopped``: another process fenced it.

    Without an epoch the process claims one. ``run`` distinguishes processes of one id and epoch.
    """

    def __init__(self, history: History, name: str, epoch: int | None, batches: int, run: str = "") -> None:
        self.history = history
        self.world = history.world
        self.network = history.network
        self.checker = history.checker
        self.producer = name
        self.claims = epoch is None
        self.epoch = epoch or 0
        self.name = self.instance = f"{name}.{'' if epoch is None else epoch}{run}"
        self.process = Process(self.world, self.name, self.name)
        self.process.node = self
        self.send_queues = SendQueues()
        self.layout: Layout | None = None
        self.batches = batches
        self.message_keys = [f"k{i}" for i in range(history.keys)]
        self.stopped = False
        self.closes_when_idle = False
        self.waiting: list[SimulatedSubBatch] = []
        self.route: dict[int, Segment] = {}
        self.unknown: set[Message] = set()
        """Messages whose outcome nobody knows."""
        self._uploading = False
        self._serial = 0
        self._message = 0
        self._streams: dict[str, SimulatedStream] = {}
        self._last_reply_at: dict[str, int] = {}
        self._retry_at: dict[str, int] = {}
        self._requested_outcomes: set[str] = set()
        self._outcomes: dict[str, SealOutcome] = {}
        self._free: set[str] = set()
        """Send queues whose streams are open for sending."""
        self._away_until = 0
        """No stream is open until then."""
        self._idle_until = 0
        """Nothing is sent until then, and streams are closed when nothing is in flight."""
        self.process.start(self._begin())

    def _begin(self) -> Steps:
        if self.claims and not (yield from self._claim()):
            return
        self.send_queues.epoch = self.epoch
        self.process.start(self._send())
        self.process.start(self._drive())

    def _claim(self) -> Steps:
        """Claims the next epoch through any broker. False if another process has a newer one."""
        while True:
            claim = self.network.call(
                self.process, self.history.any_broker(), "claim", self.producer, self.instance, None
            )
            try:
                self.epoch = yield claim
            except ProducerFenced:
                self._stop()
                return False
            except SmqError:
                yield self.world.between(50 * MS, 300 * MS)
            else:
                self.world.note(self.name, "", f"claims epoch {self.epoch} of {self.producer}")
                self.checker.producers.claimed(self.producer, self.epoch, self.instance)
                return True

    def disconnect(self, until: int) -> None:
        """Loses all streams, whatever is in flight, and opens none until then."""
        self._away_until = until
        self._close_streams()

    def fall_idle(self, until: int) -> None:
        """Sends nothing new until then. The streams are closed once nothing is in flight."""
        self._idle_until = until

    @property
    def idle(self) -> bool:
        return (
            self.batches <= 0
            and not self.waiting
            and not self._uploading
            and all(send_queue.idle for send_queue in self.send_queues.send_queues.values())
        )

    # ---- batches

    def _send(self) -> Steps:
        world = self.world
        while self.batches > 0 and not self.stopped:
            yield world.between(5 * MS, self.history.send_interval)
            if self._has_unsent() > 30 or world.now < self._idle_until or self.batches <= 0:
                continue
            self.batches -= 1
            self._serial += 1
            messages = tuple(self._make() for _ in range(world.between(1, 4)))
            yield from self._hand_over(SimulatedSubBatch(self._serial, messages, self._version()))

    def _hand_over(self, batch: SimulatedSubBatch) -> Steps:
        """Sends the batch, after an upload if it is published by reference or has a large value."""
        references, values = self.history.references, self.history.large_values
        self._uploading = True
        if values is not None and values.takes(batch):
            batch = yield from values.upload(self.process, batch)
        elif references is not None and references.uploads_next():
            batch = yield from references.upload(self.process, batch)
        self._uploading = False
        self.waiting.append(batch)
        self._enqueue()

    def _make(self) -> Message:
        key = self.message_keys[self.world.between(0, len(self.message_keys))]
        partition = self._partition_of(key)
        self._message += 1
        message = Message(self.name, self._message, key, partition, self.world.now)
        self.checker.sent(message)
        return message

    def _version(self) -> int:
        """The schema version of new batches: the newest one that this producer knows."""
        schemas = self.layout.schemas if self.layout is not None else ()
        return schemas[-1].version if schemas else 0

    def _partition_of(self, key: str) -> int:
        return partition_of(key.encode(), self.history.settings.partitions)

    def divide_keys(self, other: SimulatedProducer) -> None:
        """From now on the two write to different halves of the ring, if there are keys in both."""
        half = self.history.settings.partitions // 2
        halves = [
            [key for key in self.message_keys if (self._partition_of(key) < half) is low] for low in (True, False)
        ]
        if all(halves):
            self.message_keys, other.message_keys = halves

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
            if self.world.now < self._idle_until and not self._has_unsent():
                self._close_streams()
            if self.closes_when_idle and self.idle:
                self._close_streams()
                return
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
        for segment in layout.writable_segments:
            streams = any(name in self._streams for name in segment.predecessors)
            if (
                streams
                and self.world.now >= self._away_until
                and segment.name not in self._streams
                and self.world.chance(0.5)
            ):
                self._open(segment.name, self.send_queues.send_queue(segment))

    def _advance(self) -> None:
        """Moves partitions of a sealed segment to successors, once the delivery state of batches in flight is known.

        Until then their rows wait in the old segment's send queue, so that none overtakes another.
        """
        assert self.layout is not None
        targets = {p: s for s in self.layout.writable_segments for p in range(s.range.start, s.range.stop)}
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
        try:
            resolution = send_queue.resolve(outcome, self.producer, self.epoch, self.instance)
        except ProducerFenced:
            self._stop()
            return []
        for one in resolution.delivered:
            self._delivered(one)
        self._unknown(resolution.unknown)
        return resolution.resend

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
        if now >= max(self._retry_at.get(name, 0), self._away_until):
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
            self.instance,
        )
        stream.on_client_message = lambda message: self._on_message(name, send_queue, stream, message)
        self._streams[name] = stream
        self._last_reply_at[name] = self.world.now

    def _on_message(self, name: str, send_queue: SendQueue, stream: SimulatedStream, message: Any) -> None:
        if self._streams.get(name) is not stream:
            return
        self._last_reply_at[name] = self.world.now
        match message:
            case ("opened", OpenedProducer() as opened):
                try:
                    unknown = send_queue.opened(
                        opened.last_sequence, end=opened.end, forgotten_upto=opened.forgotten_upto
                    )
                    self._unknown(unknown)
                except ProducerFenced as error:
                    self.world.note(self.name, name, f"opened: {error}")
                    self._stop()
                except SequenceGap as error:
                    self.checker.must([Violation(2, name, f"{self.name} gets {error}")])
            case ("ack", int(sequence), first):
                for delivered in send_queue.acked(sequence, [first]):
                    self._delivered(delivered)
            case ("rejected", int(sequence)):
                self._rejected(send_queue.rejected(sequence))
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
        while self._fits(send_queue) and (sent := send_queue.next_to_send()) is not None:
            sub_batch = self._reshaped(sent.sub_batch, send_queue.segment)
            id_ = BatchId(self.producer, self.epoch, sent.sequence, self.instance)
            stream.up((incoming(sub_batch, id_), sent.rejections))

    def _fits(self, send_queue: SendQueue) -> bool:
        """False while the next batch needs a newer version than the segment has: then it waits for the successors."""
        if send_queue.to_resend or not send_queue.queue:
            return True
        sub_batch = send_queue.queue[0]
        assert isinstance(sub_batch, SimulatedSubBatch)
        return sub_batch.fits(send_queue.segment.schema_version)

    def _reshaped(self, sub_batch: object, segment: Segment) -> SimulatedSubBatch:
        """The batch with the columns of the segment."""
        assert isinstance(sub_batch, SimulatedSubBatch)
        return sub_batch.reshaped(segment.schema_version)

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

    def _close_streams(self) -> None:
        for name in list(self._streams):
            self._broke(name, self.send_queues.send_queues[name])

    def _stop(self) -> None:
        """Another process writes as this producer."""
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

    def _unknown(self, sub_batches: list[object]) -> None:
        """The segment forgot this producer, so these may or may not be in the log."""
        for sub_batch in sub_batches:
            assert isinstance(sub_batch, SimulatedSubBatch)
            self.world.note(self.name, "", f"the outcome of {[m.serial for m in sub_batch.messages]} is unknown")
            self.unknown.update(sub_batch.messages)

    def _rejected(self, sub_batch: object) -> None:
        """These messages will never be in the log."""
        if isinstance(sub_batch, SimulatedSubBatch) and self.history.references is not None:
            self.history.references.reject(sub_batch.messages)

    def _delivered(self, delivered: Any) -> None:
        self.checker.acked_to(self, delivered)
