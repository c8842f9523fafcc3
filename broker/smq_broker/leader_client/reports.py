"""The broker's status, as it goes into reports to the leader and into answers to status requests."""

from __future__ import annotations

from dataclasses import dataclass

from smq_broker.memory.accounting import MemoryAccounting
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.segments.registry import SegmentRegistry
from smq_proto.v1 import data_pb2 as pb


@dataclass(frozen=True, slots=True)
class BrokerStatusReporter:
    """``broker`` is the broker's name."""

    broker: str
    registry: SegmentRegistry
    memory: MemoryAccounting

    def status(self) -> pb.BrokerStatus:
        segments = [segment_report(hosted) for hosted in self.registry.all()]
        return pb.BrokerStatus(
            broker=self.broker,
            incarnation=self.registry.incarnation,
            draining=self.registry.draining,
            tail_bytes=sum(s.tail_bytes for s in segments),
            memory_limit=self.memory.limit,
            segments=segments,
        )


def segment_report(hosted: HostedSegment) -> pb.SegmentReport:
    """``bytes`` are those of messages as Arrow holds them; ``tail_bytes`` includes the overhead of each entry."""
    machine = hosted.machine
    return pb.SegmentReport(
        topic=hosted.topic.name,
        uid=hosted.topic.uid,
        segment=hosted.name,
        primary=hosted.is_primary,
        state=machine.state.value,
        end=machine.end,
        watermark=machine.watermark,
        chain_end=machine.chain_end,
        tail_bytes=machine.tail_bytes,
        messages=machine.counters.messages,
        bytes=hosted.bytes_in,
        batches=machine.counters.batches,
        histogram=hosted.histogram.slices if hosted.is_primary else (),
    )
