"""A follower takes batches from its primary only, and answers each with its end and its credit."""

from __future__ import annotations

import pytest

from smq_broker.replication.follower import serve_primary
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.streams.batch_reader import BatchReader
from smq_core.errors import InvalidRequest, WrongIncarnation
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.flight_streams import PutStream
from support.processes.broker import make_segment, make_topic

TOPIC = make_topic()


class FollowedSegment:
    def __init__(self) -> None:
        network: dict[str, BrokerParts] = {}
        store = open_store("memory://")
        self.primary = BrokerParts("b1", store, network)
        self.follower = BrokerParts("b2", store, network)
        segment = make_segment(TOPIC, self.primary.replica, self.follower.replica)
        self.hosted: HostedSegment = self.follower.opener.open(TOPIC, segment)
        self.stream = PutStream(self.hosted.wire.message)

    def send(self, first: int, values: list[bytes], said: int | None = None) -> None:
        """One message with one entry, which says that it has ``said`` rows (otherwise as many as it has)."""
        entry = pb.ReplicationBatch.Entry(
            producer="p", epoch=1, sequence=first, instance="p-1", rows=said or len(values), appended=5
        )
        message = pb.ReplicationBatch(base_offset=first, entries=[entry], credit=self.hosted.credit)
        self.stream.write_with_metadata(rows(values), message.SerializeToString())

    def serve(self, incarnation: str) -> list[pb.ReplicationReply]:
        """Serves what was sent, and returns the replies."""
        self.stream.done_writing()
        try:
            serve_primary(
                self.hosted, pb.ReplicaHello(primary_incarnation=incarnation), BatchReader(self.stream), self.stream
            )
        finally:
            self.replies = []
            while not self.stream.replies.empty():
                body = self.stream.replies.get()
                assert isinstance(body, bytes)
                self.replies.append(pb.ReplicationReply.FromString(body))
        return self.replies


@pytest.fixture
def followed() -> FollowedSegment:
    return FollowedSegment()


def test_each_batch_is_answered_with_the_end_and_the_credit(followed: FollowedSegment) -> None:
    followed.send(0, [b"a"])
    followed.send(1, [b"b", b"c"])
    replies = followed.serve(followed.primary.replica.incarnation)
    assert [reply.end for reply in replies] == [0, 1, 3]
    assert all(reply.credit == followed.hosted.credit > 0 for reply in replies)
    assert followed.hosted.primary_lost, "its primary has disconnected"


@pytest.mark.parametrize("caller", ["i-b2", "i-b1-before", ""])
def test_nobody_but_the_primary_replicates(followed: FollowedSegment, caller: str) -> None:
    followed.send(0, [b"a"])
    with pytest.raises(WrongIncarnation, match="replicated by i-b1 only"):
        followed.serve(caller)
    assert followed.hosted.machine.end == 0


def test_entries_that_do_not_have_the_rows_of_their_batch_are_refused(followed: FollowedSegment) -> None:
    followed.send(0, [b"a", b"b"], said=1)
    with pytest.raises(InvalidRequest, match="1 rows came with a batch of 2"):
        followed.serve(followed.primary.replica.incarnation)
    assert followed.hosted.machine.end == 0
    assert followed.replies[-1].HasField("error")
