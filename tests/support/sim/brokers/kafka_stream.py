"""A Kafka client's connection to a simulated primary, for the batches of one partition."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from smq_core.errors import SmqError
from smq_core.model.kafka_producers import KafkaBatchId
from smq_core.replica.log_entries import Ack, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, Steps

if TYPE_CHECKING:
    from support.sim.brokers.hosted_segment import SimulatedSegment


class SimulatedKafkaStream:
    """Replies in the order of the requests. While the segment is fenced, requests wait for its outcome."""

    def __init__(self, segment: SimulatedSegment, stream: SimulatedStream) -> None:
        self.segment = segment
        self.hosted = segment.hosted
        self.stream = stream
        self._inbox: deque[IncomingBatch] = deque()
        self._unacked: deque[IncomingBatch] = deque()
        self._is_open = True
        stream.on_server_message = self._on_message
        segment.process.start(self._run())

    def _on_message(self, message: Any) -> None:
        if message is None:
            self._is_open = False
        else:
            self._inbox.append(message)
            self._append()

    def _run(self) -> Steps:
        """A batch may wait for memory, for the predecessors, or for the outcome."""
        while self._is_open:
            yield 50 * MS
            if self.hosted.machine.outcome is not None:
                self._refuse(self.hosted.machine._sealed_error())
            else:
                self._append()

    def _append(self) -> None:
        error = None
        with self.hosted as machine:
            while self._inbox and error is None and self._is_open and self._may_append(machine):
                batch, watermark = self._inbox.popleft(), machine.watermark
                self._unacked.append(batch)
                try:
                    entry = machine.append(self, batch, self.hosted.clock.now())
                except SmqError as failure:
                    error = failure
                else:
                    if entry is not None:
                        self.hosted.histogram.count(batch.payload, 0, batch)  # type: ignore[arg-type]
                        self.segment.broker.checker.appended(self.segment, entry, watermark)
        if error is not None:
            self._refuse(error)

    def _may_append(self, machine: SegmentReplica) -> bool:
        if machine.state is ReplicaState.WAITING:
            self.hosted.recheck_predecessors.set()
        return machine.state is ReplicaState.OPEN and self.hosted.memory.reserve(self._inbox[0].nbytes)

    def _refuse(self, error: SmqError) -> None:
        self._is_open = False
        self.stream.down(error)
        self.stream.end()

    # ---- called by the segment, under its lock

    def acked(self, acks: list[Ack]) -> None:
        for ack in acks:
            batch = next(it for it in self._unacked if it.id == ack.id)
            self._unacked.remove(batch)
            assert isinstance(ack.id, KafkaBatchId)
            self.segment.broker.checker.kafka.acked(self.segment, batch, ack)
            self.stream.down(("ack", ack.id.sequence, ack.first_offset))

    def wake(self) -> None:
        """It looks at the segment's state by itself."""

    def fail(self, error: SmqError) -> None:
        self.segment.process.after(0, lambda: self._refuse(error))
