"""Brokers in memory, built on the core machines, that take the leader's commands as real ones do.

For tests of the leader's loop only: they can be killed, or stopped from answering, between any two commands. Their
chunks go to the same store as the leader's.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field

import pyarrow as pa
from google.protobuf.message import Message

from smq_core.errors import JournalIncomplete, NotHosted, Unavailable, WrongIncarnation
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Replica, Segment, Topic, TopicSchema
from smq_core.replica.log_entries import BatchId, IncomingBatch, ReplicaConfig
from smq_core.replica.segment_replica import ReplicaState, SegmentReplica
from smq_core.sealing import chain_sealer
from smq_proto.enums import REPLICA_STATE
from smq_proto.v1 import brokers_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, outcome_to_pb, segment_from_pb, segment_to_pb, topic_from_pb, topic_to_pb
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.parquet_codec import chunk_schema, message_schema
from smq_storage.object_store.conditional_writes import WriteConflict
from smq_storage.object_store.store import Store

_MESSAGES, _CHUNKS = message_schema(()), chunk_schema(())


@dataclass
class FakeBroker:
    """One incarnation. ``answers`` False: it runs, but is unreachable.

    ``recovered``: the former incarnations whose journals it has, which are what those held. ``journal_damaged``: what
    this one held does not count as complete. ``journal_whole`` False: it may have hosted what is not in its journal.
    """

    replica: Replica
    store: Store
    living: bool = True
    answers: bool = True
    draining: bool = False
    recovered: dict[str, FakeBroker] = field(default_factory=dict)
    journal_damaged: bool = False
    journal_whole: bool = True
    journal_problem: str = ""
    last_answers: dict[str, int] = field(default_factory=dict)
    """By leader: the number of its last answer to a report."""
    held: dict[tuple[str, str], SegmentReplica] = field(default_factory=dict)
    never: set[tuple[str, str]] = field(default_factory=set)
    topics: dict[tuple[str, str], Topic] = field(default_factory=dict)
    segments: dict[tuple[str, str], Segment] = field(default_factory=dict)

    def open(self, topic: Topic, segment: Segment) -> None:
        key = (topic.uid, segment.name)
        if key in self.held and self.held[key].state in (ReplicaState.WAITING, ReplicaState.OPEN):
            return
        if key in self.held or key in self.never:
            raise NotHosted(f"{segment.name} was here before")
        config = ReplicaConfig(
            segment=segment.name,
            range=segment.range,
            incarnation=self.replica.incarnation,
            replicas=tuple(r.incarnation for r in segment.replicas),
            durability=segment.durability,
            predecessors=segment.predecessors,
        )
        self.held[key], self.topics[key], self.segments[key] = SegmentReplica(config), topic, segment

    def hosted(self, uid: str) -> pb.HostedSegments:
        found = pb.HostedSegments()
        for process in (self, *self.recovered.values()):
            for key in (key for key in process.held if key[0] == uid):
                schema = TopicSchema(process.segments[key].schema_version, process.topics[key].spec.schema)
                found.segments.add(
                    topic=topic_to_pb(process.topics[key], schema), segment=segment_to_pb(process.segments[key])
                )
        return found

    def seal(self, request: pb.SealSegment) -> SealOutcome:
        if request.incarnation != self.replica.incarnation:
            return self._seal_from_journal(request)
        key = (request.uid, request.segment)
        machine = self.held.get(key)
        if machine is None:
            self.never.add(key)
            raise NotHosted(f"{request.segment} is not here and never will be", certain=True)
        machine.fence()
        chain = ChunkChain(self.store, request.topic, request.uid, request.segment)
        outcome = _drive(chain, request.segment, chain_sealer.UnsealedTail.of(machine), self.replica.incarnation)
        machine.sealed(outcome)
        return outcome

    def _seal_from_journal(self, request: pb.SealSegment) -> SealOutcome:
        former = self.recovered.get(request.incarnation)
        machine = former.held.get((request.uid, request.segment)) if former is not None else None
        if former is None or machine is None:
            raise NotHosted(
                f"no journal of {request.segment} is here", certain=former is not None and former.journal_whole
            )
        if former.journal_damaged and not request.accept_incomplete:
            raise JournalIncomplete("damaged", end=machine.end, watermark=machine.watermark)
        chain = ChunkChain(self.store, request.topic, request.uid, request.segment)
        outcome = _drive(chain, request.segment, chain_sealer.UnsealedTail.of_recovered(machine, 0), "journal")
        former.held.pop((request.uid, request.segment))
        if not former.held:
            del self.recovered[request.incarnation]
        return outcome

    def status(self) -> pb.BrokerStatus:
        return pb.BrokerStatus(
            broker=self.replica.broker,
            incarnation=self.replica.incarnation,
            draining=self.draining,
            journal_problem=self.journal_problem,
            segments=[
                pb.SegmentReport(
                    topic=self.topics[key].name,
                    uid=key[0],
                    segment=key[1],
                    primary=machine.config.is_primary,
                    state=REPLICA_STATE.value(machine.state),
                    end=machine.end,
                    watermark=machine.watermark,
                    chain_end=machine.chain_end,
                )
                for key, machine in self.held.items()
            ],
        )

    def report(self, leader: str = "") -> brokers_pb2.BrokerReport:
        """The next report to the leader with that process id."""
        return brokers_pb2.BrokerReport(
            protocol=PROTOCOL,
            broker=self.replica.broker,
            incarnation=self.replica.incarnation,
            address=self.replica.address,
            status=self.status(),
            recovered=list(self.recovered),
            last_leader=leader,
            last_answer=self.last_answers.get(leader, 0),
        )


class FakeFleet:
    """All brokers by incarnation; the leader's ``BrokerCalls``."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.brokers: dict[str, FakeBroker] = {}
        self.calls = 0
        self.forgotten: set[str] = set()

    def add(self, name: str, incarnation: str = "") -> FakeBroker:
        """A new incarnation of that broker name."""
        incarnation = incarnation or f"{name}-{uuid.uuid4().hex[:6]}"
        made = FakeBroker(Replica(name, incarnation, f"{name}:1"), self.store)
        self.brokers[incarnation] = made
        return made

    def restart(self, former: FakeBroker, *, journal: bool = True) -> FakeBroker:
        """The process ended. Starts a new one under its name, which has its journals, or none."""
        former.living = False
        made = self.add(former.replica.broker)
        if journal:
            made.recovered = {**former.recovered, former.replica.incarnation: former}
        return made

    async def call(self, replica: Replica, action: str, request: Message, *, timeout: float, **haste: bool) -> bytes:
        self.calls += 1
        broker = self.brokers.get(replica.incarnation)
        if broker is None or not broker.living:
            raise Unavailable("connection refused")
        if not broker.answers:
            await asyncio.sleep(timeout)
            raise Unavailable("no answer in time")
        await asyncio.sleep(0)
        return self._run(broker, request)

    def forget(self, incarnation: str) -> None:
        self.forgotten.add(incarnation)

    def _run(self, broker: FakeBroker, request: Message) -> bytes:
        match request:
            case pb.OpenSegment():
                if request.incarnation != broker.replica.incarnation:
                    raise WrongIncarnation("another process")
                broker.open(topic_from_pb(request.topic), segment_from_pb(request.segment))
                return pb.OpenedSegment().SerializeToString()
            case pb.HostedSegmentsRequest():
                return broker.hosted(request.uid).SerializeToString()
            case pb.SealSegment(only_flush=True):
                return b""
            case pb.SealSegment():
                return outcome_to_pb(broker.seal(request)).SerializeToString()
        return broker.status().SerializeToString()

    def topic_name(self, key: tuple[str, str]) -> str:
        return next(b.topics[key].name for b in self.brokers.values() if key in b.topics)

    def write(self, uid: str, segment: Segment, rows: int) -> None:
        """A batch, appended at the primary and at every follower: it counts as acked."""
        key = (uid, segment.name)
        machines = [self.brokers[r.incarnation].held[key] for r in segment.replicas]
        for name in segment.predecessors:
            seal = ChunkChain(self.store, self.topic_name(key), uid, name).read_seal_chunk()
            if seal is not None:
                machines[0].predecessor_sealed(SealOutcome(segment=name, end=seal.first))
        primary, followers = machines[0], machines[1:]
        batch = batch_of(rows, segment.range.start)
        incoming = IncomingBatch(
            id=BatchId("writer", 1, primary.counters.batches),
            rows=rows,
            nbytes=batch.nbytes,
            partition_min=segment.range.start,
            partition_max=segment.range.start,
            payload=batch,
        )
        for follower in followers:
            primary.follower_connected(follower.config.incarnation, follower.end, 1 << 30)
        primary.append(None, incoming, 1)
        for follower in followers:
            message = primary.replication_for(follower.config.incarnation)
            assert message is not None
            primary.follower_acked(follower.config.incarnation, follower.replicate(message))


def batch_of(rows: int, partition: int) -> pa.RecordBatch:
    """A wire batch; the values count from 0."""
    columns = [
        pa.array([partition] * rows, pa.int32()),
        pa.array([0] * rows, _MESSAGES.field("timestamp").type),
        pa.array([None] * rows, pa.binary()),
        pa.array([str(i).encode() for i in range(rows)], pa.binary()),
        pa.array([[]] * rows, _MESSAGES.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_MESSAGES)


def _drive(chain: ChunkChain, segment: str, held: chain_sealer.UnsealedTail, writer: str) -> SealOutcome:
    steps = chain_sealer.seal(segment, held)
    answer: chain_sealer.StoreReply = None
    try:
        step = next(steps)
        while True:
            match step:
                case chain_sealer.ReadChunk(first):
                    answer = chain.info(first)
                case chain_sealer.WriteChunk(chunk):
                    info = chunk.info(segment, writer, uuid.uuid4().hex)
                    batches = [(entry.batch.payload, entry.appended) for entry in chunk.entries]
                    answer = not isinstance(chain.put(info, batches, _CHUNKS), WriteConflict)
                case chain_sealer.WriteSeal():
                    info = step.info(writer, uuid.uuid4().hex)
                    answer = not isinstance(chain.put_seal(info), WriteConflict)
            step = steps.send(answer)
    except StopIteration as done:
        outcome: SealOutcome = done.value
        return outcome
