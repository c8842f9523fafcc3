"""Writing through a real leader's brokers with the bare data plane, and how it ended."""

from __future__ import annotations

import pyarrow as pa

from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import segment_from_pb, topic_from_pb
from support.leader_process import LeaderProcess
from support.raw_flight import RawProducer, rows
from support.waiting import eventually


class Writer(RawProducer):
    """A producer's stream that knows a partition of its segment."""

    partition = 0

    def rows(self, count: int) -> pa.RecordBatch:
        return rows([b"m"] * count, partition=self.partition)


def write(located: pb.LocateReply, segment: pb.Segment, count: int, name: str = "p") -> Writer:
    """Writes that many acked messages to the segment; the stream stays open."""
    topic, model = topic_from_pb(located.topic), segment_from_pb(segment)

    def opened() -> Writer:
        made = Writer(segment.replicas[0].address, topic, model, name=name)
        made.wait_opened()
        return made

    producer = eventually(opened, 10, what=f"{segment.name} is open at its primary")
    producer.partition = segment.start
    producer.wait_acked(producer.send(producer.rows(count)))
    return producer


def sealed(leader: LeaderProcess, name: str) -> pb.Segment:
    """The index entry of that segment, as soon as there is one."""
    return eventually(lambda: next(s for s in leader.history() if s.name == name), 30, what=f"{name} is in the index")
