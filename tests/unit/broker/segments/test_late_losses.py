"""A primary that was cut off while its segment was sealed reports what it acked meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from smq_broker.access.callers import OPEN_CALLER
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import Payload
from smq_broker.segments import registry as registry_module
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.streams.frame_spacing import FrameRate, FrameSpacing
from smq_broker.streams.tail import tail_frames
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Replica
from smq_core.model.loss import Loss
from smq_core.replica.log_entries import BatchId, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import loss_from_pb
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.flight_streams import CallContext
from support.processes.broker import make_segment, make_topic
from support.waiting import eventually


class CutOffPrimary:
    """A primary with a follower that acks everything, apart from a leader."""

    def __init__(self) -> None:
        self.broker = BrokerParts("b1", open_store("memory://"))
        topic = make_topic()
        segment = make_segment(topic, self.broker.replica, Replica("b2", "f", "nowhere:1"))
        # Without links: the test is the follower.
        self.broker.opener._start_primary = lambda hosted: None  # type: ignore[method-assign]
        self.hosted: HostedSegment = self.broker.opener.open(topic, segment)
        with self.hosted as machine:
            machine.follower_connected("f", 0, 1 << 30)

    def write(self, count: int) -> None:
        for _ in range(count):
            with self.hosted as machine:
                id_ = BatchId("p", 1, machine.counters.batches, "one")
                machine.append(
                    None,
                    IncomingBatch(
                        id=id_,
                        rows=1,
                        nbytes=1000,
                        partition_min=0,
                        partition_max=0,
                        payload=Payload(ArrowBlock(rows([b"v"]))),
                    ),
                    0,
                )
                machine.follower_acked("f", machine.end)
                machine.take_acks()

    def seal_from_filer(self, lost: tuple[int, int] | None) -> None:
        """What the leader does once the loss is accepted."""
        loss = Loss(*lost, at_least=True) if lost is not None else None
        self.hosted.chain.put_seal(
            ChunkInfo(segment=self.hosted.name, first=0, rows=0, writer="leader", nonce="n", sealed=True, lost=loss)
        )

    def write_chunk(self) -> None:
        with self.hosted as machine:
            self.hosted.flush_schedule.request(machine.watermark)
        self.broker.flusher.flush_next()

    def check_for_seal(self) -> None:
        self.broker.watcher.enqueue(self.hosted)
        self.broker.watcher.check_next()

    def wait_sealed(self) -> None:
        eventually(lambda: self.hosted.machine.state is ReplicaState.SEALED, what="it has found the seal")

    def report(self) -> list[pb.SegmentReport]:
        return list(self.broker.reporter.status().segments)


@pytest.fixture
def primary() -> CutOffPrimary:
    return CutOffPrimary()


@pytest.mark.parametrize("find_seal", [CutOffPrimary.write_chunk, CutOffPrimary.check_for_seal])
def test_what_was_acked_beyond_the_seal_stays_in_the_report(
    primary: CutOffPrimary, find_seal: Callable[[CutOffPrimary], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    primary.write(2)
    primary.seal_from_filer(lost=(0, 1))
    primary.write(3)
    find_seal(primary)
    primary.wait_sealed()
    monkeypatch.setattr(registry_module, "OUTCOME_RETENTION_SECONDS", -1.0)
    primary.broker.registry.remove_expired()
    (report,) = primary.report()
    assert (report.state, report.watermark) == (pb.SegmentReport.SEALED, 5), "the leader raises the loss to this"


def test_a_segment_that_lost_nothing_here_is_released(primary: CutOffPrimary, monkeypatch: pytest.MonkeyPatch) -> None:
    primary.write(2)
    primary.broker.sealer.follow_seal(primary.hosted)
    primary.wait_sealed()
    (report,) = primary.report()
    assert (report.state, report.watermark) == (pb.SegmentReport.SEALED, 2)
    monkeypatch.setattr(registry_module, "OUTCOME_RETENTION_SECONDS", -1.0)
    primary.broker.registry.remove_expired()
    assert not primary.report()


@pytest.mark.parametrize(
    ("recorded", "lost"), [(None, (0, 5)), ((0, 1), (0, 5)), ((0, 9), (0, 9))], ids=["unknown", "too short", "longer"]
)
def test_readers_of_this_replica_get_the_whole_lost_range(
    primary: CutOffPrimary, recorded: tuple[int, int] | None, lost: tuple[int, int]
) -> None:
    primary.write(5)
    primary.seal_from_filer(recorded)
    primary.check_for_seal()
    _, header = next(tail_frames(primary.hosted, 0, CallContext(), FrameSpacing(FrameRate()), OPEN_CALLER))
    sealed = pb.TailBatch.FromString(header).sealed
    assert (sealed.end, loss_from_pb(sealed.lost)) == (0, Loss(*lost, at_least=True))


def test_without_a_loss_readers_get_none(primary: CutOffPrimary) -> None:
    primary.write(2)
    primary.broker.sealer.follow_seal(primary.hosted)
    primary.wait_sealed()
    _, header = next(tail_frames(primary.hosted, 2, CallContext(), FrameSpacing(FrameRate()), OPEN_CALLER))
    sealed = pb.TailBatch.FromString(header).sealed
    assert sealed.end == 2 and not sealed.HasField("lost")
