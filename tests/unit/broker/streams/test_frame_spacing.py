"""How far apart frames to readers are, in virtual time; and that a held frame brings what came meanwhile."""

from __future__ import annotations

import threading

import pytest

from smq_broker.access.callers import OPEN_CALLER
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import Payload
from smq_broker.streams import frame_spacing
from smq_broker.streams.frame_spacing import (
    FRAMES_PER_SECOND,
    MAX_SPACING_SECONDS,
    SMALL_BYTES,
    FrameRate,
    FrameSpacing,
)
from smq_broker.streams.tail import tail_frames
from smq_core.model.entities import Replica
from smq_core.replica.log_entries import BatchId, IncomingBatch
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.flight_streams import CallContext
from support.processes.broker import make_segment, make_topic


def active_readers(frame_rate: FrameRate, count: int) -> list[FrameSpacing]:
    readers = [FrameSpacing(frame_rate) for _ in range(count)]
    for reader in readers:
        reader.sent(100.0)
    return readers


def test_the_first_frame_goes_out_at_once() -> None:
    assert FrameSpacing(FrameRate()).hold_seconds(100.0, 1) == 0.0


def test_all_readers_together_get_a_bounded_number_of_frames() -> None:
    readers = active_readers(FrameRate(), 60)
    assert readers[0].hold_seconds(100.0, 1) == pytest.approx(60 / FRAMES_PER_SECOND)
    assert readers[0].hold_seconds(100.0 + 60 / FRAMES_PER_SECOND, 1) == 0.0


def test_a_reader_waits_no_longer_than_the_limit() -> None:
    readers = active_readers(FrameRate(), 10_000)
    assert readers[0].hold_seconds(100.0, 1) == pytest.approx(MAX_SPACING_SECONDS)


def test_large_frames_go_out_at_once() -> None:
    readers = active_readers(FrameRate(), 1000)
    assert readers[0].hold_seconds(100.0, SMALL_BYTES + 1) == 0.0


def test_readers_that_get_nothing_do_not_count() -> None:
    frame_rate = FrameRate()
    readers = active_readers(frame_rate, 60)
    for reader in readers[1:]:
        reader.mark_idle()
        reader.mark_idle()
    assert frame_rate.spacing_seconds == pytest.approx(1 / FRAMES_PER_SECOND)
    readers[1].sent(101.0)
    assert frame_rate.spacing_seconds == pytest.approx(2 / FRAMES_PER_SECOND)


def test_a_held_frame_brings_what_came_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerParts("b1", open_store("memory://"))
    broker.opener._start_primary = lambda hosted: None  # type: ignore[method-assign]
    topic = make_topic()
    hosted = broker.opener.open(topic, make_segment(topic, broker.replica, Replica("b2", "f", "b2:1")))
    with hosted as machine:
        machine.follower_connected("f", 0, 1 << 20)

    def append(sequence: int) -> None:
        with hosted as machine:
            id_ = BatchId("p", 1, sequence, "one")
            machine.append(
                Producer(),
                IncomingBatch(
                    id=id_,
                    rows=1,
                    nbytes=100,
                    partition_min=0,
                    partition_max=0,
                    payload=Payload(ArrowBlock(rows([b"v"]))),
                ),
                0,
            )
            machine.follower_acked("f", sequence + 1)

    class Fenced(threading.Event):
        """Something comes in while the frame is held."""

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None and timeout > 0
            append(2)
            return False

    monkeypatch.setattr(frame_spacing, "FRAMES_PER_SECOND", 1e-9)
    monkeypatch.setattr(frame_spacing, "MAX_SPACING_SECONDS", 3600.0)
    monkeypatch.setattr(hosted, "fenced", Fenced())
    frames = tail_frames(hosted, 0, CallContext(), FrameSpacing(FrameRate()), OPEN_CALLER)
    append(0)
    assert next(frames)[0].num_rows == 1
    append(1)
    batch, header = next(frames)
    assert batch.num_rows == 2 and pb.TailBatch.FromString(header).first_offset == 1


class Producer:
    def acked(self, acks: object) -> None: ...

    def wake(self) -> None: ...

    def fail(self, error: Exception) -> None: ...


def test_a_shared_stream_counts_for_all_of_its_readers() -> None:
    frame_rate = FrameRate()
    shared = FrameSpacing(frame_rate, readers=60)
    shared.sent(0.0)
    assert frame_rate.spacing_seconds == pytest.approx(60 / FRAMES_PER_SECOND)
    shared.mark_idle()
    assert frame_rate.spacing_seconds == 0.0
