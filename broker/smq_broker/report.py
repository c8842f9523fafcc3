"""The broker's status as it is told to the leader and to whoever asks."""

from __future__ import annotations

from smq_broker.held import Held
from smq_broker.holdings import Holdings
from smq_proto.v1 import data_pb2 as pb


def segment_report(held: Held) -> pb.SegmentReport:
    """Bytes are those of messages as Arrow holds them; ``tail_bytes`` has the cost of keeping them besides."""
    machine = held.machine
    return pb.SegmentReport(
        topic=held.topic.name,
        uid=held.topic.uid,
        segment=held.name,
        primary=held.is_primary,
        state=machine.state.value,
        end=machine.end,
        watermark=machine.watermark,
        chain_end=machine.chain_end,
        tail_bytes=machine.tail_bytes,
        messages=machine.counters.messages,
        bytes=held.bytes_in,
        batches=machine.counters.batches,
        histogram=held.histogram.slices if held.is_primary else (),
    )


def broker_status(name: str, holdings: Holdings) -> pb.BrokerStatus:
    segments = [segment_report(held) for held in holdings.all()]
    return pb.BrokerStatus(
        broker=name,
        incarnation=holdings.incarnation,
        draining=holdings.draining,
        tail_bytes=sum(s.tail_bytes for s in segments),
        memory_limit=holdings.memory.limit,
        segments=segments,
    )
