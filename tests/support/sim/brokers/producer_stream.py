"""A producer's stream at a simulated primary. It stands in for ``ProducerSession`` and its lane."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from smq_core.errors import SchemaMismatch, SegmentSealed, SmqError, StoreUnavailable
from smq_core.invariants import Violation
from smq_core.replica.log_entries import Ack, BatchId, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from support.sim.clients import large_values, uploads
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, Steps

if TYPE_CHECKING:
    from support.sim.brokers.hosted_segment import SimulatedSegment


class SimulatedProducerStream:
    """Batches wait in ``inbox`` while memory is short, and until their uploads and large values were checked."""

    def __init__(
        self, segment: SimulatedSegment, stream: SimulatedStream, producer: str, epoch: int, instance: str
    ) -> None:
        self.segment = segment
        self.hosted = segment.hosted
        self.stream = stream
        self.producer = producer
        self.epoch = epoch
        self.instance = instance
        self.inbox: deque[tuple[IncomingBatch, int]] = deque()
        """Batches, each with how many rejections its producer had seen."""
        self.rejections = 0
        self._accepted: BatchId | None = None
        self._checking = False
        self._number = segment.broker.world.unique("stream")

    def __hash__(self) -> int:
        return int(self._number.removeprefix("stream"))  # a segment's set of streams has the same order in each run

    def open(self) -> None:
        """Accepts or refuses the stream. A successor that waits to open has no batches of any producer."""
        opened = None
        try:
            with self.hosted as machine:
                self.hosted.streams.add(self)
                opened = machine.open_producer(self, self.producer, self.epoch, self.instance)
        except SegmentSealed:
            self.on_wake()
        except SmqError as error:
            self._refuse(error)
            return
        if opened is not None:
            self.stream.down(("opened", opened))
        self.stream.on_server_message = self.on_message

    def on_message(self, message: Any) -> None:
        if message is None:
            self.close()
            return
        self.inbox.append(message)
        self.read_on()

    def read_on(self) -> None:
        """Appends as many of the batches as there is capacity for."""
        segment, error = self.segment, None
        with self.hosted as machine:
            while self.inbox and error is None:
                batch, rejections = self.inbox[0]
                if rejections < self.rejections:
                    self.inbox.popleft()
                    continue
                if not self._may_append(machine, batch):
                    break
                self.inbox.popleft()
                watermark = machine.watermark
                try:
                    self._check_columns(batch)
                    entry = machine.append(self, batch, self.hosted.clock.now())
                except SegmentSealed:
                    break  # it gets the outcome when there is one
                except SmqError as failure:
                    error = failure
                else:
                    if entry is not None:
                        self.hosted.histogram.count(batch.payload, 0, batch)  # type: ignore[arg-type]
                        segment.broker.checker.appended(segment, entry, watermark)
        if error is not None:
            self._refuse(error)

    def close(self) -> None:
        self.inbox.clear()
        self.stream.end()
        with self.hosted.lock:
            self.hosted.machine.close_producer(self, self.producer)
            if self in self.hosted.streams:
                self.hosted.streams.discard(self)
                self.segment.broker.checker.producers.stream_closed(self.segment, self.producer)

    # ---- called by the segment, under its lock

    def acked(self, acks: list[Ack]) -> None:
        for ack in acks:
            self.segment.broker.checker.acked(self.segment, ack)
            self.stream.down(("ack", ack.id.sequence, ack.first_offset))

    def wake(self) -> None:
        self.segment.process.after(0, self.on_wake)

    def fail(self, error: SmqError) -> None:
        self.segment.process.after(0, lambda: self._refuse(error))

    # ---- inside

    def on_wake(self) -> None:
        """The segment has another state."""
        outcome = self.hosted.machine.outcome
        if outcome is None:
            self.read_on()
        elif self in self.hosted.streams:
            self.segment.broker.checker.record_outcome(outcome, self.segment.process.name)
            self.stream.down(("sealed", outcome))
            self.close()

    def _refuse(self, error: SmqError) -> None:
        self.stream.down(error)
        self.close()

    def _may_append(self, machine: SegmentReplica, batch: IncomingBatch) -> bool:
        """Whether the machine may decide on the batch now. Reserves memory for it if the segment is open."""
        if machine.state is ReplicaState.WAITING:
            self.hosted.recheck_predecessors.set()
            return False
        if machine.state is not ReplicaState.OPEN:
            return True
        if self._must_check(batch):
            if not self._checking:
                self._checking = True
                self.segment.process.start(self._check(batch))
            return False
        return self.hosted.memory.reserve(batch.nbytes)

    def _check_columns(self, batch: IncomingBatch) -> None:
        """Raises SchemaMismatch if the batch has not the columns of this segment."""
        assert isinstance(batch.payload, SimulatedSubBatch)
        version, own = batch.payload.version, self.hosted.segment.schema_version
        if version != own:
            raise SchemaMismatch(
                f"the batch has version {version}, and {self.hosted.name} has {own}", expected=str(own)
            )

    def _must_check(self, batch: IncomingBatch) -> bool:
        machine = self.hosted.machine
        if batch.reference is None and not batch.large_values:
            return False
        if batch.id == self._accepted or machine.state is not ReplicaState.OPEN:
            return False
        return machine.is_new(batch.id)

    def _check(self, batch: IncomingBatch) -> Steps:
        """Accepts or rejects what the batch at the head of the inbox refers to, outside of everything else."""
        broker = self.segment.broker
        while True:
            try:
                if batch.reference is not None:
                    problem = yield from uploads.rejection_of(broker.store, broker.process, batch.reference)
                else:
                    problem = yield from large_values.rejection_of(broker.store, broker.process, batch.large_values)
                break
            except StoreUnavailable:
                yield 100 * MS
        self._checking = False
        if not self.inbox or self.inbox[0][0] is not batch:
            return
        if problem is None:
            self._accepted = batch.id
        elif self._must_check(batch):
            self.inbox.popleft()
            self.rejections += 1
            broker.world.note(broker.process.name, self.hosted.name, f"rejects {batch.id}: {problem}")
            if problem == uploads.OTHER_ROWS:
                broker.checker.must([Violation(2, self.hosted.name, f"{batch.id} refers to other rows than were sent")])
            self.stream.down(("rejected", batch.id.sequence))
        self.read_on()


def incoming(sub_batch: SimulatedSubBatch, id_: Any) -> IncomingBatch:
    partitions = sub_batch.partitions
    return IncomingBatch(
        id=id_,
        rows=len(sub_batch.messages),
        nbytes=sub_batch.nbytes,
        partition_min=min(partitions),
        partition_max=max(partitions),
        payload=sub_batch,
        reference=uploads.reference_of(sub_batch),
        large_values=(sub_batch.large_value,) if sub_batch.large_value else (),
        partition_rows=tuple(sorted(Counter(partitions).items())),
    )
