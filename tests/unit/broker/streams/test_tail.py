"""What a reader gets of a tail, and what it must not get."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from smq_broker.access.callers import OPEN_CALLER
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import Payload
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.streams.frame_spacing import FrameRate, FrameSpacing
from smq_broker.streams.tail import Frame, tail_frames
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Replica
from smq_core.replica.log_entries import BatchId, IncomingBatch
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.flight_streams import CallContext
from support.processes.broker import make_segment, make_topic


class TailOfPrimary:
    """A primary whose follower acks when the test says so."""

    def __init__(self) -> None:
        broker = BrokerParts("b1", open_store("memory://"))
        topic = make_topic()
        segment = make_segment(topic, broker.replica, Replica("b2", "f", "nowhere:1"))
        # Without links: the test is the follower.
        broker.opener._start_primary = lambda hosted: None  # type: ignore[method-assign]
        self.hosted: HostedSegment = broker.opener.open(topic, segment)
        self.context = CallContext()
        with self.hosted as machine:
            machine.follower_connected("f", 0, 1 << 30)

    def append(self, *values: bytes) -> None:
        with self.hosted as machine:
            id_ = BatchId("p", 1, machine.counters.batches, "one")
            machine.append(
                None,
                IncomingBatch(
                    id=id_,
                    rows=len(values),
                    nbytes=1000,
                    partition_min=0,
                    partition_max=0,
                    payload=Payload(ArrowBlock(rows(values))),
                ),
                0,
            )

    def ack(self, end: int) -> None:
        with self.hosted as machine:
            machine.follower_acked("f", end)
            machine.take_acks()

    def read(self, position: int = 0) -> Iterator[Frame]:
        return tail_frames(self.hosted, position, self.context, FrameSpacing(FrameRate()), OPEN_CALLER)


def values(batch: pa.RecordBatch) -> list[bytes]:
    found: list[bytes] = batch.column("value").to_pylist()
    return found


def test_rows_above_the_watermark_are_withheld() -> None:
    tail = TailOfPrimary()
    tail.append(b"a")
    tail.append(b"b")
    frames = tail.read()
    batch, header = next(frames)
    assert batch.num_rows == 0 and pb.TailBatch.FromString(header).watermark == 0
    tail.ack(1)
    batch, header = next(frames)
    assert values(batch) == [b"a"] and pb.TailBatch.FromString(header).watermark == 1
    batch, _ = next(frames)
    assert batch.num_rows == 0, "no replica has b yet"
    tail.ack(2)
    assert values(next(frames)[0]) == [b"b"]


def test_a_reader_that_joins_gets_nothing_above_the_watermark() -> None:
    tail = TailOfPrimary()
    for value in (b"a", b"b", b"c"):
        tail.append(value)
    tail.ack(2)
    for position, expected in ((0, [b"a", b"b"]), (1, [b"b"]), (2, [])):
        batch, header = next(tail.read(position))
        assert values(batch) == expected
        assert pb.TailBatch.FromString(header).watermark == 2


def test_rows_that_the_seal_left_out_are_never_sent() -> None:
    tail = TailOfPrimary()
    tail.append(b"a")
    tail.append(b"b")
    tail.ack(1)
    frames = tail.read()
    assert values(next(frames)[0]) == [b"a"]
    with tail.hosted as machine:
        machine.fence()
        machine.sealed(SealOutcome(segment=tail.hosted.name, end=1))
    batch, header = next(frames)
    assert batch.num_rows == 0 and pb.TailBatch.FromString(header).sealed.end == 1
    assert list(frames) == []
