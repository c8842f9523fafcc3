"""A simulated idempotent producer of Kafka. It keeps the sequences of batches that it sends again, as Kafka's do."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from smq_core.errors import ProducerFenced, SequenceGap, SmqError
from smq_core.invariants import Message, Violation
from smq_core.model.entities import Layout, Segment
from smq_core.model.kafka_producers import RECENT_KAFKA_BATCHES, SEQUENCES, KafkaBatchId
from smq_core.model.keyspace import partition_of
from support.sim.brokers.producer_stream import incoming
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, SECOND, Process, Steps

if TYPE_CHECKING:
    from support.sim.histories.protocol import History


@dataclass(slots=True)
class _Partition:
    """``queue`` has the batches without an ack in their order; the first ``sent`` of them are on the stream."""

    number: int
    next_sequence: int
    epoch: int = 0
    queue: deque[tuple[int, SimulatedSubBatch]] = field(default_factory=deque)
    sent: int = 0
    segment: Segment | None = None
    stream: SimulatedStream | None = None
    last_reply_at: int = 0


class SimulatedKafkaProducer:
    """``batches`` are not sent yet. Some of its partitions begin near the highest sequence."""

    def __init__(self, history: History, name: str, batches: int) -> None:
        self.history = history
        self.world = history.world
        self.checker = history.checker
        self.name = name
        self.producer_id = int(history.world.unique("9").replace("-", ""))
        self.batches = batches
        self.process = Process(self.world, name, name)
        self.process.node = self
        self.layout: Layout | None = None
        self.gaps = 0
        """How often a log had lost what was acked, so that the producer began a new epoch."""
        begin = self.world.random.choice([0, SEQUENCES - 20])
        self.partitions = [_Partition(number, begin) for number in range(history.settings.partitions)]
        self._message = 0
        self.process.start(self._send())
        self.process.start(self._drive())

    @property
    def idle(self) -> bool:
        return self.batches <= 0 and not any(it.queue for it in self.partitions)

    def unacked(self) -> dict[int, list[int]]:
        """The sequences of the batches without an ack, by partition."""
        return {it.number: [sequence for sequence, _ in it.queue] for it in self.partitions if it.queue}

    def _send(self) -> Steps:
        world = self.world
        while self.batches > 0:
            yield world.between(5 * MS, self.history.send_interval)
            if sum(len(it.queue) for it in self.partitions) > 30:
                continue
            self.batches -= 1
            key = f"k{world.between(0, self.history.keys)}"
            it = self.partitions[partition_of(key.encode(), len(self.partitions))]
            messages = tuple(self._make(key, it.number) for _ in range(world.between(1, 4)))
            it.queue.append((it.next_sequence, SimulatedSubBatch(self._message, messages)))
            it.next_sequence = (it.next_sequence + len(messages)) % SEQUENCES
            self._pump(it)

    def _make(self, key: str, partition: int) -> Message:
        self._message += 1
        message = Message(self.name, self._message, key, partition, self.world.now)
        self.checker.sent(message)
        return message

    def _drive(self) -> Steps:
        while True:
            yield self.world.between(60 * MS, 140 * MS)
            waiting = [it for it in self.partitions if it.queue]
            if any(it.stream is None for it in waiting):
                yield from self._locate()
            for it in waiting:
                if it.stream is not None and self.world.now - it.last_reply_at > 2 * SECOND:
                    self._close(it)
                if it.stream is None:
                    self._open(it)

    def _locate(self) -> Steps:
        try:
            layout = yield self.history.network.call(self.process, self.history.any_broker(), "locate", timeout=SECOND)
        except SmqError:
            return
        if self.layout is None or layout.version > self.layout.version:
            self.layout = layout

    def _open(self, it: _Partition) -> None:
        segments = self.layout.segments if self.layout is not None else ()
        it.segment = next((segment for segment in reversed(segments) if it.number in segment.range), None)
        if it.segment is None:
            return
        primary = it.segment.primary
        it.stream = SimulatedStream(
            self.history.network, self.process, primary.address, "kafka", it.segment.name, primary.incarnation
        )
        stream = it.stream
        stream.has_holes = False
        it.stream.on_client_message = lambda message: self._on_message(it, stream, message)
        it.sent, it.last_reply_at = 0, self.world.now
        self._pump(it)

    def _pump(self, it: _Partition) -> None:
        """Sends what may be in flight."""
        while it.stream is not None and it.sent < min(len(it.queue), RECENT_KAFKA_BATCHES):
            sequence, sub_batch = it.queue[it.sent]
            it.sent += 1
            it.stream.up(incoming(sub_batch, KafkaBatchId(self.producer_id, it.epoch, sequence)))

    def _on_message(self, it: _Partition, stream: SimulatedStream, message: Any) -> None:
        if it.stream is not stream:
            return
        it.last_reply_at = self.world.now
        match message:
            case ("ack", sequence, int(offset)):
                if it.queue[0][0] != sequence or not it.sent:
                    words = f"{self.name} gets an ack of {sequence}, but {it.queue[0][0]} is the first one"
                    self.checker.must([Violation(3, "", words)])
                assert it.segment is not None
                it.sent -= 1
                self.checker.kafka.acked_to(it.segment.name, it.queue.popleft()[1].messages, offset)
                self._pump(it)
            case SequenceGap(expected=expected) if it.queue and expected != it.queue[0][0]:
                self._close(it)
                self._begin_epoch(it, expected)
            case ProducerFenced():
                self.checker.must([Violation(3, "", f"{self.name} gets {message}")])
            case _:
                self._close(it)

    def _begin_epoch(self, it: _Partition, expected: int) -> None:
        """As Kafka's client does when the log does not continue where its acks end."""
        self.gaps += 1
        self.world.note(self.name, "", f"{it.queue[0][0]} is refused for {expected}: partition {it.number} begins anew")
        self.checker.kafka.refused(self.name, it.number)
        it.epoch += 1
        it.next_sequence = 0
        for position, (_, sub_batch) in enumerate(it.queue):
            it.queue[position] = it.next_sequence, sub_batch
            it.next_sequence += len(sub_batch.messages)

    def _close(self, it: _Partition) -> None:
        if it.stream is not None:
            it.stream.leave()
        it.stream, it.sent = None, 0
