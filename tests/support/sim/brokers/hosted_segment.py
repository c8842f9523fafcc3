"""One segment on one simulated broker. It drives ``SegmentReplica`` in the order that the protocol requires.

A seal fences, waits for a chunk in flight, runs the sealer, and replies then. No outcome is sent before the seal chunk
exists.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from smq_core.errors import SchemaMismatch, SmqError, StoreUnavailable
from smq_core.invariants import Violation
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability, Segment, number_of
from smq_core.model.interval_set import contains
from smq_core.replica.log_entries import BatchId, IncomingBatch, ReplicaConfig
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_core.sealing import chain_sealer
from smq_core.sealing.chain_sealer import UnsealedTail
from support.sim.brokers.journal import JournalWriter
from support.sim.brokers.replication import ReplicaLink, ReplicaServer
from support.sim.clients import large_values, uploads
from support.sim.clients.messages import SimulatedSubBatch
from support.sim.engine.network import SimulatedStream
from support.sim.engine.world import MS, SECOND, Future, Steps
from support.sim.filer.chunk_chain import INDEX, SimulatedChain

if TYPE_CHECKING:
    from support.sim.brokers.broker import SimulatedBroker

SLICES = 64
# How often a segment that waits for predecessors looks into the index, as real brokers do.
INDEX_INTERVAL = 3 * SECOND


class SimulatedProducerStream:
    """A producer's stream at the primary. Received batches wait in ``inbox`` while memory is short.

    A reference waits there until its upload was checked, and a name of a large value until its object was.
    """

    def __init__(
        self, hosted: SimulatedSegment, stream: SimulatedStream, producer: str, epoch: int, instance: str
    ) -> None:
        self.hosted = hosted
        self.stream = stream
        self.producer = producer
        self.epoch = epoch
        self.instance = instance
        self.inbox: deque[tuple[IncomingBatch, int]] = deque()
        """Batches, each with how many rejections its producer had seen."""
        self.rejections = 0
        self._accepted: BatchId | None = None
        self._checking = False
        stream.on_server_message = self.on_message

    def on_message(self, message: Any) -> None:
        if message is None:
            self.close()
            return
        self.inbox.append(message)
        self.read_on()
        self.hosted.pump()

    def read_on(self) -> None:
        hosted = self.hosted
        while self._may_append() and hosted.has_capacity(self.inbox[0][0].nbytes):
            batch, rejections = self.inbox[0]
            if rejections < self.rejections:
                self.inbox.popleft()
                continue
            if self._must_check(batch):
                if not self._checking:
                    self._checking = True
                    hosted.process.start(self._check(batch))
                return
            self.inbox.popleft()
            watermark = hosted.machine.watermark
            try:
                hosted.check_columns(batch)
                entry = hosted.machine.append(self.stream, batch, hosted.broker.clock())
            except SmqError as error:
                if hosted.machine.state in (ReplicaState.FENCED, ReplicaState.SEALED):
                    return  # it gets the outcome when there is one
                self.stream.down(error)
                self.close()
                return
            if entry is not None:
                hosted.count(batch.payload)
                hosted.broker.checker.appended(hosted, entry, watermark)

    def _must_check(self, batch: IncomingBatch) -> bool:
        machine = self.hosted.machine
        if batch.reference is None and not batch.large_values:
            return False
        if batch.id == self._accepted or machine.state is not ReplicaState.OPEN:
            return False
        return machine.is_new(batch.id)

    def _check(self, batch: IncomingBatch) -> Steps:
        """Accepts or rejects what the batch at the head of the inbox refers to, outside of everything else."""
        broker = self.hosted.broker
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
        self.hosted.pump()

    def _may_append(self) -> bool:
        """The first batch waits for the segment to open, if it waited for predecessors when the stream opened."""
        return bool(self.inbox) and self.hosted.machine.state is not ReplicaState.WAITING

    def close(self) -> None:
        self.inbox.clear()
        self.stream.end()
        self.hosted.machine.close_producer(self.stream, self.producer)
        if self in self.hosted.streams:
            self.hosted.streams.remove(self)
            self.hosted.broker.checker.producers.stream_closed(self.hosted, self.producer)


class SimulatedSegment:
    def __init__(self, broker: SimulatedBroker, segment: Segment) -> None:
        settings = broker.settings
        self.broker = broker
        self.process = broker.process
        self.segment = segment
        self.name = segment.name
        self.chain = SimulatedChain(broker.store, broker.process, segment.name, settings.timeout)
        self.machine = SegmentReplica(
            ReplicaConfig(
                segment=segment.name,
                range=segment.range,
                incarnation=broker.incarnation,
                replicas=tuple(r.incarnation for r in segment.replicas),
                durability=segment.durability,
                predecessors=segment.predecessors,
                flush_bytes=settings.flush_bytes,
                flush_interval=settings.flush_interval,
                flush_max_interval=settings.flush_max_interval,
                producer_limits=settings.limits,
                journal=broker.disk is not None and segment.durability is Durability.REPLICATED,
            )
        )
        self.journal: JournalWriter | None = None
        if broker.disk is not None and self.machine.config.journal:
            self.journal = JournalWriter(self, broker.disk)
        self.replica_server: ReplicaServer | None = None
        """The newest stream from the primary."""
        self.streams: list[SimulatedProducerStream] = []
        self.links: list[ReplicaLink] = []
        self.sealing: Future | None = None
        self.chunk_done = Future()
        self.primary_seen_at = broker.world.now
        self.histogram = [0] * min(SLICES, len(segment.range))
        self._replicating = False
        self._looking = False
        self._followed: set[str] = set()

    def start(self) -> None:
        if self.machine.config.is_primary:
            for name in self.segment.predecessors:
                self._follow_predecessor(name)
            self.links = [ReplicaLink(self, replica) for replica in self.segment.replicas[1:]]

    def check_columns(self, batch: IncomingBatch) -> None:
        """Raises SchemaMismatch if the batch has not the columns of this segment."""
        assert isinstance(batch.payload, SimulatedSubBatch)
        version, own = batch.payload.version, self.segment.schema_version
        if version != own:
            raise SchemaMismatch(f"the batch has version {version}, and {self.name} has {own}", expected=str(own))

    # ---- load and memory

    def count(self, sub_batch: Any) -> None:
        """Messages per equal slice of the range, as reported to the leader."""
        start, size, slices = self.segment.range.start, len(self.segment.range), len(self.histogram)
        for message in sub_batch.messages:
            self.histogram[(message.partition - start) * slices // size] += 1

    def has_capacity(self, nbytes: int) -> bool:
        """True if there is capacity. An empty tail always accepts a batch."""
        if not self.machine.tail:
            return True
        return self.machine.available_bytes() >= nbytes and self.broker.primaries_capacity() >= nbytes

    # ---- after each change

    def pump(self, *, flush: bool = False) -> None:
        machine = self.machine
        for stream in list(self.streams):
            if stream.inbox:
                stream.read_on()
        if self.journal is not None and not self.links:
            self.journal.pump()
        for ack in machine.take_acks() if machine.has_due_acks() else ():
            self.broker.checker.acked(self, ack)
            assert isinstance(ack.stream, SimulatedStream)
            ack.stream.down(("ack", ack.id.sequence, ack.first_offset))
        chunk = machine.next_chunk(self.broker.clock(), force=flush)
        if chunk is not None:
            self.process.start(self._write(chunk))
        if self.links and not self._replicating:
            self._replicating = True
            self.process.after(self.broker.world.between(1 * MS, 20 * MS), self._replicate)

    def tick(self) -> None:
        if self.machine.state is ReplicaState.SEALED:
            return
        for link in self.links:
            link.tick()
        unresponsive = self.broker.world.now - self.primary_seen_at > 2 * SECOND
        if not self.machine.config.is_primary and unresponsive:
            self.start_seal_search()
        stretched = self.broker.settings.flush_max_interval is not None
        if stretched and self.machine.chain_check_due(self.broker.clock()):
            self.start_seal_search()
        # Without a longest interval the interval alone makes space.
        self.pump(flush=stretched and (self.broker.memory_share() > 0.6 or any(s.inbox for s in self.streams)))
        self.broker.checker.observed(self)

    def heartbeat(self) -> None:
        for stream in self.streams:
            stream.stream.down(("heartbeat",))

    def _replicate(self) -> None:
        self._replicating = False
        for link in self.links:
            link.send()
        if self.journal is not None:
            self.journal.pump()
            self.pump()

    def journaled(self) -> None:
        """More is in the journal, or it has failed."""
        if self.journal is not None:
            self.journal.pump()
        if self.replica_server is not None:
            self.replica_server.report_end()
        self.pump()

    # ---- the chain

    def _write(self, chunk: Any) -> Steps:
        """Retries the same chunk under the same nonce, because an earlier attempt may be applied."""
        nonce = self.broker.world.unique("n")
        mine: bool | None = None
        while mine is None:
            try:
                mine = yield from self.chain.write(chunk, nonce)
            except StoreUnavailable:
                if self.machine.state is not ReplicaState.OPEN:
                    break
                yield 100 * MS
        if mine is None:
            self.machine.chunk_failed()
        elif mine:
            self.machine.chunk_written(chunk)
        else:
            self.machine.chunk_conflict()
            self.seal()
        done, self.chunk_done = self.chunk_done, Future()
        done.set()
        self.pump()

    def _follow_predecessor(self, name: str) -> None:
        if name not in self._followed:
            self._followed.add(name)
            self.process.start(self._read_predecessor(name))

    def _read_predecessor(self, name: str) -> Steps:
        """The segment opens only when this process has itself read every predecessor's seal chunk."""
        chain = SimulatedChain(self.broker.store, self.process, name)
        start = 0
        index_read_at = self.broker.world.now
        while self.machine.state is ReplicaState.WAITING:
            try:
                info = yield from chain.info(start)
            except StoreUnavailable:
                info = None
            if info is not None and info.sealed:
                self.machine.predecessor_sealed(info.outcome)
                for further in info.uninherited:
                    self._follow_predecessor(further)
                self.broker.world.note(self.process.name, self.name, f"read the seal of {name}: {self.machine.state}")
            elif info is not None:
                start = info.end
                continue
            elif self.broker.world.now - index_read_at > INDEX_INTERVAL:
                index_read_at = self.broker.world.now
                if (yield from self._is_removed(name)):
                    self.machine.predecessor_sealed(SealOutcome(segment=name, end=0))
                    self.broker.checker.producers.found_removed(self.name, name)
            if self.machine.state is ReplicaState.OPEN:
                self.broker.checker.producers.opened(self.name)
            yield self.broker.world.between(30 * MS, 150 * MS)
            if name not in self.machine.unread_predecessors:
                return

    def _is_removed(self, name: str) -> Steps:
        """Whether retention has removed a segment, and its seal chunk with it."""
        try:
            found = yield self.broker.store.get(self.process, INDEX)
        except StoreUnavailable:
            return False
        return found is not None and contains(found[0].removed, number_of(name))

    # ---- sealing

    def seal(self) -> Future:
        """Seals once. All requests wait for the same run."""
        if self.sealing is None:
            self.broker.world.note(self.process.name, self.name, f"fenced at {self.machine.end}, seals")
            self.sealing = self.process.start(self._seal())
        return self.sealing

    def _seal(self) -> Steps:
        self.machine.fence()
        while self.machine.chunk_in_flight:
            yield self.chunk_done
        while True:
            try:
                outcome = yield from self.chain.drive(chain_sealer.seal(self.name, UnsealedTail.of(self.machine)))
                break
            except StoreUnavailable:
                yield 200 * MS
        self.ended(outcome)
        self.broker.history.file_lists.sealed(self, outcome)
        return outcome

    def ended(self, outcome: Any) -> None:
        """The seal chunk exists: drops the tail and informs all streams."""
        if self.machine.state is ReplicaState.SEALED:
            return
        self.machine.fence()
        self.machine.sealed(outcome)
        if self.journal is not None:
            self.journal.remove()
        self.report_outcome(outcome)

    def report_outcome(self, outcome: Any) -> None:
        self.broker.checker.record_outcome(outcome, self.process.name)
        for stream in list(self.streams):
            stream.stream.down(("sealed", outcome))
            stream.close()
        for link in self.links:
            link.stop()

    def start_seal_search(self) -> None:
        """Checks whether another replica or a leader has sealed the segment."""
        if not self._looking and self.sealing is None:
            self._looking = True
            self.process.start(self._find_seal())

    def _find_seal(self) -> Steps:
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

    def take_producer(self, stream: SimulatedStream, producer: str, epoch: int, instance: str) -> None:
        """Accepts or refuses the stream. A successor that waits to open has no batches of any producer."""
        if self.machine.state is ReplicaState.SEALED:
            stream.down(("sealed", self.machine.outcome))
            stream.end()
            return
        served = SimulatedProducerStream(self, stream, producer, epoch, instance)
        if self.machine.state is ReplicaState.FENCED:
            self.streams.append(served)
            return
        try:
            opened = self.machine.open_producer(stream, producer, epoch, instance)
        except SmqError as error:
            stream.down(error)
            served.close()
            return
        self.streams.append(served)
        stream.down(("opened", opened))

    def read_tail(self, offset: int) -> tuple[Any, ...]:
        machine = self.machine
        if machine.state is ReplicaState.SEALED:
            self.broker.checker.record_outcome(machine.outcome, self.process.name)
            return ("sealed", machine.outcome)
        if offset < machine.tail_start:
            return ("trimmed", machine.tail_start)
        entries = machine.readable(offset, 1000)
        self.broker.checker.served(self, entries)
        return ("rows", entries)


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
    )
