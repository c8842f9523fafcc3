"""Writes to brokers of a real leader over the data plane, and reads how a segment was sealed."""

from __future__ import annotations

import pyarrow as pa

from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import segment_from_pb, topic_from_pb
from support.data.raw_flight import RawProducer, rows
from support.processes.leader import LeaderProcess
from support.waiting import eventually


class SegmentWriter(RawProducer):
    """A producer's stream, with a partition of its segment."""

    partition = 0

    def rows(self, count: int) -> pa.RecordBatch:
        return rows([b"m"] * count, partition=self.partition)


def write(located: pb.LocateReply, segment: pb.Segment, count: int, name: str = "p") -> SegmentWriter:
    """Writes ``count`` messages to the segment and waits for their acks. The stream stays open."""
    topic, model = topic_from_pb(located.topic), segment_from_pb(segment)

    def opened() -> SegmentWriter:
        made = SegmentWriter(segment.replicas[0].address, topic, model, name=name)
        made.wait_opened()
        return made

    producer = eventually(opened, what=f"{segment.name} is open at its primary")
    producer.partition = segment.start
    producer.wait_acked(producer.send(producer.rows(count)))
    return producer


def sealed_segments(leader: LeaderProcess, name: str) -> pb.Segment:
    """Waits for the index entry of that segment."""
    return eventually(lambda: next(s for s in leader.history() if s.name == name), what=f"{name} is in the index")
