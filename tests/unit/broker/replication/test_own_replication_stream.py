"""A primary's link to a follower, which the test plays: what is sent again, what is acked, and what is not."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

import pytest

from smq_broker.replication import own_stream
from smq_broker.replication import stream as replication_stream
from smq_broker.replication.link_state import LARGE_BYTES, LinkState
from smq_broker.replication.own_stream import OwnReplicationStream
from smq_broker.rows.payloads import Payload
from smq_broker.runtime.threads import Task
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import NotHosted, SegmentSealed, SmqError
from smq_core.model.entities import Replica
from smq_core.replica.log_entries import BatchId, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.flight_streams import Chunk, InMemoryFlightClient, PutStream
from support.processes.broker import make_segment, make_topic
from support.waiting import HANG_GUARD, eventually

CREDIT = 1 << 20


class LinkedPrimary:
    """Each stream of the link waits in ``streams`` until the test answers it, and ends when the test says so."""

    def __init__(self) -> None:
        self.broker = BrokerParts("b1", open_store("memory://"))
        topic = make_topic()
        segment = make_segment(topic, self.broker.replica, Replica("b2", "f", "b2:1"))
        self.broker.opener._start_primary = lambda hosted: None  # type: ignore[method-assign]
        self.hosted: HostedSegment = self.broker.opener.open(topic, segment)
        self.streams: queue.Queue[PutStream] = queue.Queue()
        self.rejections: list[SmqError] = []
        self.fenced = 0
        self.client = InMemoryFlightClient(self._handle)
        state = LinkState(self.hosted, segment.replicas[1])
        self.link = OwnReplicationStream(state, self._on_fenced, self.broker.threads, lambda _: self.client)
        self.hosted.links = [self.link]  # type: ignore[list-item]

    def _on_fenced(self, hosted: HostedSegment) -> None:
        self.fenced += 1
        self.fence()

    def _handle(self, _: bytes, stream: PutStream) -> None:
        if self.rejections:
            raise self.rejections.pop(0)
        self.streams.put(stream)
        while not stream.broken.wait(0.005) and not stream.client_done.is_set():
            pass

    def start(self) -> None:
        self.broker.threads.start(Task("replication", self.link.run))

    def connect(self, end: int = 0, credit: int = CREDIT) -> PutStream:
        """The next stream, after the follower has said where it ends."""
        stream = self.streams.get(timeout=HANG_GUARD)
        reply(stream, end, credit)
        return stream

    def append(self, nbytes: int = 1000) -> None:
        with self.hosted as machine:
            id_ = BatchId("p", 1, machine.counters.batches, "one")
            machine.append(self, IncomingBatch(id_, 1, nbytes, 0, 0, Payload(rows([b"v"]))), 0)

    def fence(self) -> None:
        with self.hosted as machine:
            machine.fence()

    @property
    def watermark(self) -> int:
        return self.hosted.machine.watermark

    def acked(self, acks: object) -> None: ...

    def wake(self) -> None: ...

    def fail(self, error: SmqError) -> None: ...


def reply(stream: PutStream, end: int, credit: int = CREDIT) -> None:
    stream.write(pb.ReplicationReply(end=end, credit=credit).SerializeToString())


def next_entries(stream: PutStream) -> tuple[int, int]:
    """The next message with entries: their first offset and their number."""
    while True:
        chunk = stream.requests.get(timeout=HANG_GUARD)
        assert isinstance(chunk, Chunk), "the stream ended"
        message = pb.ReplicationBatch.FromString(chunk.app_metadata or b"")
        if message.entries:
            return message.base_offset, len(message.entries)


@pytest.fixture
def primary() -> Iterator[LinkedPrimary]:
    made = LinkedPrimary()
    made.start()
    yield made
    made.fence()
    for stream in made.client.streams:
        stream.break_connection()


def test_the_watermark_follows_the_followers_answers_only(primary: LinkedPrimary) -> None:
    stream = primary.connect()
    primary.append()
    primary.append()
    first, count = next_entries(stream)
    while first + count < 2:
        first, count = next_entries(stream)
    assert primary.watermark == 0, "sent is not acked"
    reply(stream, 1)
    eventually(lambda: primary.watermark == 1)
    reply(stream, 2)
    eventually(lambda: primary.watermark == 2)


def test_what_was_not_answered_is_sent_again_over_the_next_stream(primary: LinkedPrimary) -> None:
    stream = primary.connect()
    primary.append()
    assert next_entries(stream) == (0, 1)
    stream.break_connection()
    stream = primary.connect(end=0)
    assert next_entries(stream) == (0, 1)
    assert primary.watermark == 0
    reply(stream, 1)
    eventually(lambda: primary.watermark == 1)


def test_what_the_follower_has_is_not_sent_again(primary: LinkedPrimary) -> None:
    stream = primary.connect()
    primary.append()
    assert next_entries(stream) == (0, 1)
    stream.break_connection()
    stream = primary.connect(end=1)
    eventually(lambda: primary.watermark == 1)
    primary.append()
    assert next_entries(stream) == (1, 1)


def test_an_error_while_reading_replies_reopens_the_stream(
    primary: LinkedPrimary, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = primary.connect()
    eventually(lambda: primary.hosted.machine.available_bytes() > 0)
    with monkeypatch.context() as damaged:

        def fail(_: object) -> None:
            raise ValueError("unexpected")

        damaged.setattr(primary.link, "_handle", fail)
        primary.append()
        assert next_entries(stream) == (0, 1)
        reply(stream, 1)
        eventually(lambda: primary.broker.metric("smq_thread_failures_total", thread="replies") == 1)
    primary.connect(end=1)
    eventually(lambda: primary.watermark == 1)
    assert primary.broker.threads.process_failure is None


def test_credit_is_what_the_follower_granted_last(primary: LinkedPrimary) -> None:
    assert primary.hosted.machine.available_bytes() == 0, "none before the follower is connected"
    stream = primary.connect(credit=5000)
    eventually(lambda: primary.hosted.machine.available_bytes() == 5000)
    primary.append()
    next_entries(stream)
    assert primary.hosted.machine.available_bytes() == 4000
    reply(stream, 1, credit=9000)
    eventually(lambda: primary.hosted.machine.available_bytes() == 8000)


def test_a_follower_that_does_not_answer_is_unresponsive_until_it_does(
    primary: LinkedPrimary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication_stream, "UNRESPONSIVE_AFTER_SECONDS", 0.0)
    stream = primary.connect()
    eventually(lambda: primary.hosted.machine.available_bytes() > 0)
    primary.append()
    next_entries(stream)
    eventually(primary.link.unresponsive)
    stream.break_connection()
    eventually(lambda: primary.streams.qsize() == 1)
    assert primary.link.unresponsive(), "a new connection is no answer"


def test_a_follower_that_has_not_opened_the_segment_is_tried_again() -> None:
    primary = LinkedPrimary()
    primary.rejections = [NotHosted("not open yet")] * 3
    primary.start()
    stream = primary.connect()
    eventually(lambda: primary.hosted.machine.available_bytes() > 0)
    assert len(primary.client.streams) == 4
    primary.fence()
    stream.break_connection()


def test_a_fenced_follower_is_reported_once_and_ends_the_link() -> None:
    primary = LinkedPrimary()
    primary.rejections = [SegmentSealed("fenced")]
    primary.start()
    eventually(lambda: primary.fenced == 1)
    assert primary.hosted.machine.state is ReplicaState.FENCED
    assert primary.streams.empty() and len(primary.client.streams) == 1


def test_a_fenced_segment_sends_nothing_more(primary: LinkedPrimary) -> None:
    stream = primary.connect()
    primary.append()
    assert next_entries(stream) == (0, 1)
    primary.fence()
    reply(stream, 1)
    while isinstance(chunk := stream.requests.get(timeout=HANG_GUARD), Chunk):
        assert not pb.ReplicationBatch.FromString(chunk.app_metadata or b"").entries
    assert primary.watermark == 0, "nothing is acked after the fence"


def test_small_batches_wait_for_the_answer_and_go_out_as_one_message(
    primary: LinkedPrimary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_stream, "MAX_HOLD_SECONDS", 3600.0)
    stream = primary.connect()
    primary.append()
    assert next_entries(stream) == (0, 1)
    for _ in range(3):
        primary.append()
        primary.link.send_now()  # looks at once, as the link's thread will
    assert not primary.link.can_send_now()
    reply(stream, 1)
    assert next_entries(stream) == (1, 3)


def test_many_bytes_do_not_wait_for_the_answer(primary: LinkedPrimary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_stream, "MAX_HOLD_SECONDS", 3600.0)
    stream = primary.connect()
    primary.append()
    assert next_entries(stream) == (0, 1)
    primary.append(LARGE_BYTES + 1)
    assert next_entries(stream) == (1, 1)


def test_whoever_appends_may_send_if_nothing_is_unanswered(primary: LinkedPrimary) -> None:
    stream = primary.connect()
    eventually(primary.link.can_send_now)
    with primary.hosted as machine:
        id_ = BatchId("p", 1, 0, "one")
        machine.append(primary, IncomingBatch(id_, 1, 1000, 0, 0, Payload(rows([b"v"]))), 0)
        assert primary.hosted.links_to_send_now() == [primary.link]
    primary.link.send_now()
    assert next_entries(stream) == (0, 1)
    assert not primary.link.can_send_now()


def test_what_cannot_be_sent_at_once_after_all_is_sent_by_the_link(
    primary: LinkedPrimary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread was between taking a message and counting it as sent when this one asked."""
    monkeypatch.setattr(own_stream, "HEARTBEAT_SECONDS", 3600.0)
    stream = primary.connect()
    primary.append()
    assert next_entries(stream) == (0, 1)
    eventually(lambda: primary.link.idle, "now only a notification wakes the link's thread")
    monkeypatch.setattr(primary.link, "can_send_now", lambda: True)
    with primary.hosted as machine:
        id_ = BatchId("p", 1, 1, "one")
        machine.append(primary, IncomingBatch(id_, 1, 1000, 0, 0, Payload(rows([b"v"]))), 0)
        primary.hosted.links_to_send_now()
    primary.link._sent_at = time.monotonic() + 1.0  # the other thread has just sent: the hold has begun
    primary.link.send_now()
    assert next_entries(stream) == (1, 1), "after the hold, without an answer"
