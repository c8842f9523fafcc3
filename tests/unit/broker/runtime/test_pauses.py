"""A broker that was paused acks nothing before it knows that its segments were not sealed meanwhile."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import Payload
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_broker.runtime.clock import Clock
from smq_broker.runtime.pauses import PAUSE_SECONDS, PauseCounter
from smq_broker.runtime.threads import ThreadSupervisor
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.seal_watcher import SealWatcher
from smq_core.errors import StoreUnavailable
from smq_core.model.chunk_info import ChunkInfo, SealOutcome
from smq_core.model.entities import Replica
from smq_core.model.loss import Loss
from smq_core.replica.log_entries import Ack, BatchId, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import open_store
from support.processes.broker import make_segment, make_topic


class PausedPrimary:
    """A primary with one follower, whose process can be paused. ``sequences`` are the acks that a producer got."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sequences: list[int] = []
        self._sequence = 0
        pauses = PauseCounter(lambda: self.now)
        topic = make_topic()
        segment = make_segment(topic, Replica("b1", "me", "x:1"), Replica("b2", "f", "x:2"))
        self.chain = ChunkChain(open_store("memory://"), topic.name, topic.uid, segment.name)
        self.hosted = HostedSegment(
            topic=topic,
            segment=segment,
            incarnation="me",
            chain=self.chain,
            memory=MemoryAccounting(1 << 30),
            clock=Clock(),
            pauses=pauses,
            on_chunk_due=lambda hosted: None,
            on_change=lambda: None,
        )
        self.watcher = SealWatcher(
            lambda: [self.hosted], pauses, ThreadSupervisor(BrokerMetrics(CollectorRegistry())), self._seal_found
        )
        with self.hosted as machine:
            machine.follower_connected("f", 0, 1 << 30)

    def write(self) -> None:
        """A batch that both replicas get, so its ack is due."""
        id_ = BatchId("p", 0, self._sequence)
        self._sequence += 1
        with self.hosted as machine:
            machine.append(
                self,
                IncomingBatch(
                    id=id_,
                    rows=1,
                    nbytes=100,
                    partition_min=0,
                    partition_max=0,
                    payload=Payload(ArrowBlock(self.hosted.wire.empty)),
                ),
                now=0,
            )
            machine.follower_acked("f", machine.end)

    def seal_from_filer(self, known_watermark: int) -> None:
        """What the leader does once the loss is accepted."""
        lost = Loss(0, known_watermark, at_least=True)
        self.chain.put_seal(
            ChunkInfo(segment=self.hosted.name, first=0, rows=0, writer="leader", nonce="n", sealed=True, lost=lost)
        )

    def check(self) -> None:
        self.watcher.enqueue(self.hosted)
        self.watcher.check_next()

    def acked(self, acks: list[Ack]) -> None:
        self.sequences += [ack.id.sequence for ack in acks]

    def wake(self) -> None: ...

    def _seal_found(self, hosted: HostedSegment, info: ChunkInfo) -> None:
        with hosted as machine:
            machine.sealed(SealOutcome(segment=hosted.name, end=info.first, producers=info.producers, lost=info.lost))


def test_a_primary_that_resumes_after_its_loss_was_accepted_acks_nothing_more():
    primary = PausedPrimary()
    primary.write()
    assert primary.sequences == [0]
    primary.now += 30
    primary.seal_from_filer(known_watermark=1)
    primary.write()  # the follower resumed as well
    assert primary.sequences == [0], "it is in no chunk, and beyond the loss that was recorded"
    primary.check()
    assert primary.hosted.machine.state is ReplicaState.SEALED
    assert primary.sequences == [0]


def test_a_primary_that_resumes_acks_what_waits_once_its_chain_is_found_unsealed():
    primary = PausedPrimary()
    primary.now += 30
    primary.write()
    primary.write()
    assert not primary.sequences and primary.hosted.awaits_seal_check
    primary.check()
    assert primary.sequences == [0, 1] and not primary.hosted.awaits_seal_check
    primary.write()
    assert primary.sequences == [0, 1, 2], "without another check"


def test_acks_wait_while_the_filer_cannot_be_read(monkeypatch: pytest.MonkeyPatch):
    primary = PausedPrimary()
    primary.now += 30
    primary.write()

    def unavailable(first: int) -> ChunkInfo | None:
        raise StoreUnavailable("broken by the test")

    with monkeypatch.context() as patch:
        patch.setattr(primary.chain, "info", unavailable)
        patch.setattr(primary.chain, "walk", unavailable)
        primary.check()
        assert not primary.sequences
    primary.check()
    assert primary.sequences == [0]


def test_a_pause_during_the_check_requires_another_check(monkeypatch: pytest.MonkeyPatch):
    primary = PausedPrimary()
    primary.now += 30
    primary.write()
    walk = primary.chain.walk

    def paused_walk(start: int = 0):
        found = list(walk(start))
        primary.now += 30
        return iter(found)

    with monkeypatch.context() as patch:
        patch.setattr(primary.chain, "walk", paused_walk)
        primary.check()
    assert not primary.sequences
    primary.check()
    assert primary.sequences == [0]


def test_short_gaps_are_no_pauses():
    at = [0.0]
    pauses = PauseCounter(lambda: at[0])
    for _ in range(100):
        at[0] += PAUSE_SECONDS
        assert pauses.read() == 0
    at[0] += PAUSE_SECONDS + 0.001
    assert pauses.read() == pauses.read() == 1
