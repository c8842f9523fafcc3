"""A successor waits for its predecessors' seal chunks, but for none that retention has deleted."""

from __future__ import annotations

import threading

import pytest

from smq_broker.segments import predecessors
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import ProducerFenced
from smq_core.model.chunk_info import ChunkInfo, ProducerState
from smq_core.model.entities import Reason, RemovedSegment, SealedSegment, Segment
from smq_core.model.keyspace import Partitioner
from smq_core.model.partition_offsets import PartitionOffsets, SealedPartitions
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.catalog import sealed_index
from smq_storage.catalog.sealed_index import SealedRing
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store, open_store
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic
from support.waiting import HANG_GUARD, eventually


class ThreeSegments:
    """``y`` follows ``x`` and ended empty, sealed by its follower; ``z`` follows ``y`` and waits."""

    def __init__(self, **spec: object) -> None:
        self.store: Store = open_store("memory://")
        network: dict[str, BrokerParts] = {}
        self.one, self.two = (BrokerParts(name, self.store, network) for name in ("b1", "b2"))
        self.topic = make_topic(**spec)
        self.x = self._segment(0)
        self.y = self._segment(1, self.x)
        self.z = self._segment(2, self.y)
        self.two.opener.open(self.topic, self.y)
        self.two.seal(self.topic, self.y, [self.z])
        self.two.opener.open(self.topic, self.z)

    def open_z(self) -> HostedSegment:
        """At its primary, which has nothing else."""
        return self.one.opener.open(self.topic, self.z)

    def _segment(self, number: int, *before: Segment) -> Segment:
        return make_segment(self.topic, self.one.replica, self.two.replica, number=number, predecessors=before)

    def expire_x(self) -> None:
        """Its entry leaves the index. It has no seal chunk any more."""
        where = self.store, self.topic.name, self.topic.uid
        entry = SealedSegment(
            name=self.x.name,
            number=0,
            range=self.x.range,
            end=5,
            predecessors=(),
            successors=(self.y.name,),
            opened_because=Reason.CREATE,
            sealed_because=Reason.ROLL,
            opened_at=0,
            sealed_at=1,
        )
        ring = None
        if self.topic.spec.has_kafka_offsets:
            ends = PartitionOffsets(first=0, ends=(7,) * self.topic.spec.partitions)
            ring = SealedRing(self.x.range, {self.x.name: SealedPartitions(range=self.x.range, offsets=ends)})
        sealed_index.append(*where, [entry], ring=ring)
        sealed_index.remove(*where, [RemovedSegment(name=self.x.name, number=0, end=5, removed_at=2)])


def test_it_waits_for_the_predecessor_of_one_that_ended_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predecessors, "INDEX_INTERVAL_SECONDS", 0.0)
    polled = threading.Semaphore(0)
    read = sealed_index.load
    monkeypatch.setattr(sealed_index, "load", lambda *where: (polled.release(), read(*where))[1])
    it = ThreeSegments()
    waiting = it.open_z()
    for _ in range(3):
        assert polled.acquire(timeout=HANG_GUARD)
    assert waiting.machine.state is ReplicaState.WAITING
    assert waiting.machine.unread_predecessors == {it.x.name}
    it.one.opener.open(it.topic, it.x)
    it.one.seal(it.topic, it.x, [it.y])
    eventually(lambda: waiting.machine.state is ReplicaState.OPEN)


def test_it_does_not_wait_for_one_that_retention_has_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predecessors, "INDEX_INTERVAL_SECONDS", 0.0)
    it = ThreeSegments()
    waiting = it.open_z()
    it.expire_x()
    eventually(lambda: waiting.machine.state is ReplicaState.OPEN)


def test_it_continues_the_kafka_offsets_of_one_that_retention_has_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predecessors, "INDEX_INTERVAL_SECONDS", 0.0)
    it = ThreeSegments(partitioner=Partitioner.KAFKA, partitions=16)
    waiting = it.open_z()
    it.expire_x()
    eventually(lambda: waiting.machine.state is ReplicaState.OPEN)
    found = waiting.machine.state_at_end().partition_offsets()
    assert found is not None and found.ends == (7,) * 16


def test_it_reads_the_seal_chunk_of_one_that_was_removed_while_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files stay for a while, and the seal chunk has the producers' epochs."""
    monkeypatch.setattr(predecessors, "INDEX_INTERVAL_SECONDS", 0.0)
    it = ThreeSegments()
    producers = {"p": ProducerState(epoch=3, last_sequence=4, recent=(0,))}
    chain = ChunkChain(it.store, it.topic.name, it.topic.uid, it.x.name)
    chain.put_seal(
        ChunkInfo(segment=it.x.name, first=0, rows=0, writer="w", nonce="seal", sealed=True, producers=producers)
    )
    it.expire_x()
    waiting = it.open_z()
    eventually(lambda: waiting.machine.state is ReplicaState.OPEN)
    with waiting as machine, pytest.raises(ProducerFenced):
        machine.open_producer(object(), "p", 2)
