"""One segment on one simulated broker: the broker's own ``HostedSegment``, and what the simulation has around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.journaling import write_missing
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.thread_runtime import make_event
from support.sim.brokers.journal import SimulatedSegmentJournal
from support.sim.brokers.producer_stream import SimulatedProducerStream
from support.sim.brokers.replication import ReplicaLink, ReplicaServer
from support.sim.engine.network import SimulatedStream
from support.sim.engine.virtual_threads import VirtualThread

if TYPE_CHECKING:
    from support.sim.brokers.broker import SimulatedBroker


class SimulatedSegment:
    """``replica_server`` is the newest stream from the primary."""

    def __init__(self, broker: SimulatedBroker, hosted: HostedSegment) -> None:
        self.broker = broker
        self.process = broker.process
        self.hosted = hosted
        self.machine = hosted.machine
        self.segment = hosted.segment
        self.name = hosted.name
        self.journal: Any = hosted.journal
        self.replica_server: ReplicaServer | None = None
        self._journal_due = make_event()
        if self.journal is not None:
            VirtualThread(self.process, self._write_journal, "journal")

    @property
    def streams(self) -> set[SimulatedProducerStream]:
        return self.hosted.streams  # type: ignore[return-value]

    @property
    def links(self) -> list[ReplicaLink]:
        return self.hosted.links  # type: ignore[return-value]

    def tick(self) -> None:
        if self.machine.state is ReplicaState.SEALED:
            return
        for link in self.links:
            link.tick()
        if self.replica_server is not None:
            self.replica_server.tick()
        for stream in list(self.streams):
            stream.read_on()
        self.broker.checker.observed(self)

    def heartbeat(self) -> None:
        for stream in self.streams:
            stream.stream.down(("heartbeat",))

    def write_journal(self) -> None:
        """Entries were sent or received."""
        self._journal_due.set()

    def _write_journal(self) -> None:
        """As the threads that send to the first follower, or receive from the primary."""
        assert isinstance(self.journal, SimulatedSegmentJournal)
        while not self.journal.ended:
            write_missing(self.hosted)
            if self.replica_server is not None:
                self.replica_server.report_end()
            self._journal_due.wait()
            self._journal_due.clear()
        if self.replica_server is not None:
            self.replica_server.report_end()

    # ---- streams from producers

    def take_producer(self, stream: SimulatedStream, producer: str, epoch: int, instance: str) -> None:
        SimulatedProducerStream(self, stream, producer, epoch, instance).open()

    def read_tail(self, offset: int) -> tuple[Any, ...]:
        machine = self.machine
        if machine.state is ReplicaState.SEALED:
            self.broker.checker.record_outcome(machine.outcome, self.process.name)
            return ("sealed", machine.outcome)
        with self.hosted.lock:
            if offset < machine.tail_start:
                return ("trimmed", machine.tail_start)
            entries = machine.readable(offset, 1000)
        self.broker.checker.served(self, entries)
        return ("rows", entries)
