"""Sessions of several segments on one connection to their follower's broker, which the test plays."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from smq_broker.replication import connection, message_spacing
from smq_broker.replication.connection import ReplicaConnection
from smq_broker.replication.connections import ReplicaConnections
from smq_broker.replication.message_spacing import ClientActivity
from smq_broker.replication.primary_lane import Lane
from smq_broker.replication.replica_session import BULK_BYTES, ReplicaSession
from smq_broker.rows.blocks import ArrowBlock, Block
from smq_broker.rows.payloads import Payload
from smq_broker.rows.small_batches import SmallBatch
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import NotHosted, SegmentSealed, SmqError, Unavailable
from smq_core.model.entities import Replica
from smq_core.replica.log_entries import BatchId, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState
from smq_core.sessions.lanes import SMALL
from smq_proto.error_conversion import error_to_pb
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.flight_streams import Chunk, InMemoryFlightClient, PutStream
from support.processes.broker import make_segment, make_topic
from support.waiting import HANG_GUARD, eventually

CREDIT = 1 << 20
FOLLOWER = Replica("b2", "f", "b2:1")


class Primary:
    """A broker that leads two segments. Each stream waits in ``streams`` until the test answers it."""

    def __init__(self) -> None:
        self.broker = BrokerParts("b1", open_store("memory://"))
        self.client = InMemoryFlightClient(self._handle)
        self.streams: queue.Queue[PutStream] = queue.Queue()
        self.bulk_streams: queue.Queue[PutStream] = queue.Queue()
        self.fenced: list[str] = []
        self.connections = ReplicaConnections(
            "i-b1", threads=self.broker.threads, clients=self.broker.clients, connect_flight=lambda *_: self.client
        )
        self.segments = [self._open(number) for number in range(2)]

    def _open(self, number: int) -> HostedSegment:
        topic = make_topic()
        segment = make_segment(topic, self.broker.replica, FOLLOWER, number=number)
        self.broker.opener._start_primary = lambda hosted: None  # type: ignore[method-assign]
        hosted = self.broker.opener.open(topic, segment)
        session = ReplicaSession(
            hosted,
            follower=FOLLOWER,
            on_fenced=self._on_fenced,
            on_death=lambda: self.fence(hosted),
            connections=self.connections,
        )
        hosted.links = [session]
        return hosted

    def _on_fenced(self, hosted: HostedSegment) -> None:
        self.fenced.append(hosted.name)
        self.fence(hosted)

    def _handle(self, command: bytes, stream: PutStream) -> None:
        hello = pb.PutOpen.FromString(command).replica
        (self.bulk_streams if hello.lane == pb.LANE_BULK else self.streams).put(stream)
        while not stream.broken.wait(0.005) and not stream.client_done.is_set():
            pass

    def times(self, **seconds: float) -> None:
        """Of the connections that are made from now on."""
        self.connections._times = replace(self.connections._times, **seconds)

    @property
    def connection(self) -> ReplicaConnection:
        (only,) = self.connections._connections.values()
        return only

    def start(self) -> None:
        for hosted in self.segments:
            hosted.links[0].start()

    def connect(self) -> Follower:
        """The follower's end of the next connection's small lane."""
        return self._accept(self.streams)

    def connect_bulk(self, follower: Follower) -> Follower:
        """The follower's end of the next bulk lane of this connection."""
        lane = self._accept(self.bulk_streams)
        lane.sessions = follower.sessions
        return lane

    def _accept(self, streams: queue.Queue[PutStream]) -> Follower:
        follower = Follower(streams.get(timeout=HANG_GUARD))
        follower.stream.write(pb.ReplicationFrameReply().SerializeToString())
        return follower

    def append(
        self, number: int = 0, nbytes: int = 1000, *, sends_now: bool = False, block: Block | None = None
    ) -> None:
        hosted = self.segments[number]
        with hosted as machine:
            id_ = BatchId("p", 1, machine.counters.batches, "one")
            machine.append(
                self,
                IncomingBatch(
                    id=id_,
                    rows=1,
                    nbytes=nbytes,
                    partition_min=0,
                    partition_max=0,
                    payload=Payload(block or ArrowBlock(rows([b"v"]))),
                ),
                0,
            )
            if sends_now:
                assert hosted.links_to_send_now() == hosted.links

    def fence(self, hosted: HostedSegment) -> None:
        with hosted as machine:
            machine.fence()

    def watermark(self, number: int = 0) -> int:
        return self.segments[number].machine.watermark

    def acked(self, acks: object) -> None: ...

    def wake(self) -> None: ...

    def fail(self, error: SmqError) -> None: ...


class Follower:
    """What the test has received on one lane; ``sessions`` are the numbers of the segments on the connection."""

    def __init__(self, stream: PutStream) -> None:
        self.stream = stream
        self.rows_beside = False
        """Whether rows came beside the last frame."""
        self.sessions: dict[str, int] = {}
        self.closed: list[int] = []
        self.small_batches: list[pb.SmallBatch] = []
        self.sent_watermarks: dict[int, int] = {}
        """In the last entries of each session."""

    def reply(self, *parts: tuple[int, pb.ReplicationReply]) -> None:
        answer = pb.ReplicationFrameReply()
        for session, reply in parts:
            answer.parts.add(session=session, reply=reply)
        self.stream.write(answer.SerializeToString())

    def next(self) -> pb.ReplicationFrame:
        """The next message; opened and closed sessions are noted."""
        chunk = self.stream.requests.get(timeout=HANG_GUARD)
        assert isinstance(chunk, Chunk), "the stream ended"
        assert chunk.app_metadata, "Flight drops empty metadata"
        message = pb.ReplicationFrame.FromString(chunk.app_metadata)
        self.rows_beside = chunk.data is not None
        for part in message.parts:
            if part.HasField("open"):
                self.sessions[part.open.segment] = part.session
            if part.close:
                self.closed.append(part.session)
        return message

    def open_all(self, segments: list[HostedSegment], *, end: int = 0, credit: int = CREDIT) -> None:
        """Answers that these segments are open here. Each message is answered once, as followers do."""
        missing = {hosted.name for hosted in segments}
        opened = pb.ReplicationReply(end=end, credit=credit)
        while missing:
            self.next()
            found = missing & set(self.sessions)
            missing -= found
            self.reply(*((self.sessions[name], opened) for name in sorted(found)))

    def watermarks(self, segments: list[HostedSegment]) -> None:
        """Answers messages until each of these segments has been sent its watermark."""
        missing = {self.sessions[hosted.name] for hosted in segments}
        while missing:
            missing -= {part.session for part in self.next().parts if part.header}
            self.reply()

    def wait_closed(self, session: int) -> None:
        """Answers messages until the primary has ended this session."""

        def is_closed() -> bool:
            self.next()
            self.reply()
            return session in self.closed

        eventually(is_closed, pause=0.0)

    def entries(self) -> dict[int, tuple[int, int]]:
        """Of the next message that has any: for each session the first offset and the number of entries.

        Messages without are answered.
        """
        deadline = time.monotonic() + HANG_GUARD
        while True:
            assert time.monotonic() < deadline, "entries come"
            message = self.next()
            found = {}
            for part in message.parts:
                header = pb.ReplicationBatch.FromString(part.header)
                if header.entries:
                    forms = [bool(part.rows), header.HasField("small_batch"), self.rows_beside]
                    assert forms.count(True) == 1, "entries come with their rows"
                    self.small_batches += [header.small_batch] if header.HasField("small_batch") else []
                    found[part.session] = (header.base_offset, len(header.entries))
                    self.sent_watermarks[part.session] = header.watermark
            if found:
                return found
            self.reply()


@pytest.fixture
def primary() -> Iterator[Primary]:
    made = Primary()
    yield made
    for hosted in made.segments:
        made.fence(hosted)
    for stream in made.client.streams:
        stream.break_connection()


def opened(primary: Primary) -> Follower:
    primary.start()
    follower = primary.connect()
    follower.open_all(primary.segments)
    follower.watermarks(primary.segments)
    eventually(lambda: all(hosted.machine.available_bytes() > 0 for hosted in primary.segments))
    return follower


def end_reply(end: int, credit: int = CREDIT) -> pb.ReplicationReply:
    return pb.ReplicationReply(end=end, credit=credit)


@pytest.fixture
def no_updates(primary: Primary) -> None:
    """Nothing is sent but entries."""
    primary.times(update_seconds=3600.0, heartbeat_seconds=3600.0)


def test_segments_with_the_same_follower_share_a_stream(primary: Primary) -> None:
    follower = opened(primary)
    assert len(primary.client.streams) == 1
    assert len(set(follower.sessions.values())) == 2


def test_what_comes_while_a_message_is_unanswered_goes_out_as_one_for_all_segments(
    primary: Primary, no_updates: None
) -> None:
    primary.times(hold_seconds=3600.0)
    follower = opened(primary)
    one, two = (follower.sessions[hosted.name] for hosted in primary.segments)
    eventually(primary.segments[0].links[0].can_send_now)
    primary.append()
    assert follower.entries() == {one: (0, 1)}
    now = time.monotonic()
    assert primary.connection.machine.held_until(SMALL, now) > now, "its thread need not look for that to be seen"
    primary.append(0)
    primary.append(1)
    primary.append(1)
    assert not primary.segments[1].links[0].can_send_now()
    assert primary.watermark() == 0, "sent is not acked"
    follower.reply((one, end_reply(1)))
    assert follower.entries() == {one: (1, 1), two: (0, 2)}
    follower.reply((one, end_reply(2)), (two, end_reply(1)))
    eventually(lambda: (primary.watermark(0), primary.watermark(1)) == (2, 1))


def test_batches_of_several_clients_wait_for_each_other(
    primary: Primary, no_updates: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_spacing, "SPACING_PER_CLIENT_SECONDS", 3600.0)
    monkeypatch.setattr(message_spacing, "MAX_SPACING_SECONDS", 3600.0)
    follower = opened(primary)
    one, two = (follower.sessions[hosted.name] for hosted in primary.segments)
    eventually(primary.segments[0].links[0].can_send_now)
    primary.append(0)
    assert follower.entries() == {one: (0, 1)}
    clients = [ClientActivity(primary.broker.clients) for _ in range(2)]
    for stream in clients:
        stream.received(0.0)
    follower.reply((one, end_reply(1)))
    eventually(lambda: primary.watermark() == 1)
    primary.append(0)
    primary.append(1)
    assert not primary.segments[0].links[0].can_send_now(), "the last message is answered, but it was just now"
    for stream in clients:
        stream.close()
    primary.append(1)
    assert follower.entries() == {one: (1, 1), two: (0, 2)}


def test_small_batches_stay_small_on_their_way_to_the_follower(primary: Primary, no_updates: None) -> None:
    follower = opened(primary)
    session = follower.sessions[primary.segments[0].name]
    eventually(primary.segments[0].links[0].can_send_now)
    primary.append(block=SmallBatch([0], [5], [], [b"small"]))
    assert follower.entries() == {session: (0, 1)}
    assert [list(it.values) for it in follower.small_batches] == [[b"small"]]
    follower.reply((session, end_reply(1)))
    primary.append()
    assert follower.entries() == {session: (1, 1)}
    assert len(follower.small_batches) == 1, "an Arrow batch stays one"


def test_entries_take_the_watermark_along(primary: Primary, no_updates: None) -> None:
    """Otherwise a busy segment would send it alone, too, fifty times a second."""
    follower = opened(primary)
    session = follower.sessions[primary.segments[0].name]
    eventually(primary.segments[0].links[0].can_send_now)
    primary.append()
    assert follower.entries() == {session: (0, 1)}
    follower.reply((session, end_reply(1)))
    other = follower.sessions[primary.segments[1].name]
    primary.append(1)
    assert follower.entries() == {other: (0, 1)}
    follower.reply((other, end_reply(1)))
    eventually(lambda: set(primary.connection.machine._updates) == {session, other}, "watermarks are to be sent")
    primary.append()
    assert follower.entries() == {session: (1, 1)}
    assert follower.sent_watermarks == {session: 1, other: 0}, "it was in that message"
    assert list(primary.connection.machine._updates) == [other]


def test_the_watermarks_of_quiet_segments_share_a_message(primary: Primary, no_updates: None) -> None:
    follower = opened(primary)
    sessions = [follower.sessions[hosted.name] for hosted in primary.segments]
    for number, session in enumerate(sessions):
        eventually(primary.segments[number].links[0].can_send_now)
        primary.append(number)
        assert follower.entries() == {session: (0, 1)}
        follower.reply((session, end_reply(1)))
    updates = primary.connection.machine._updates
    eventually(lambda: len(updates) == 2)
    with primary.connection.lock:
        updates[next(iter(updates))] = 0.0  # its time has come, and the other one's has not
        primary.connection._lanes[SMALL]._wake.notify()
    message = follower.next()
    headers = {part.session: pb.ReplicationBatch.FromString(part.header) for part in message.parts}
    assert {session: header.watermark for session, header in headers.items()} == dict.fromkeys(sessions, 1)


def test_a_quiet_segments_watermark_does_not_wait_for_a_heartbeat(primary: Primary, no_updates: None) -> None:
    primary.times(update_seconds=0.02)
    follower = opened(primary)
    session = follower.sessions[primary.segments[0].name]
    primary.append()
    assert follower.entries() == {session: (0, 1)}
    follower.reply((session, end_reply(1)))
    (part,) = follower.next().parts
    assert pb.ReplicationBatch.FromString(part.header).watermark == 1


def test_whoever_appends_to_several_segments_sends_one_message(primary: Primary, no_updates: None) -> None:
    follower = opened(primary)
    one, two = (follower.sessions[hosted.name] for hosted in primary.segments)
    eventually(primary.segments[0].links[0].can_send_now)
    primary.append(0, sends_now=True)
    primary.append(1, sends_now=True)
    for hosted in primary.segments:
        hosted.links[0].send_now()
    assert follower.entries() == {one: (0, 1), two: (0, 1)}


def test_what_was_not_answered_is_sent_again_over_the_next_stream(primary: Primary) -> None:
    follower = opened(primary)
    primary.append(1)
    assert follower.entries() == {follower.sessions[primary.segments[1].name]: (0, 1)}
    follower.stream.break_connection()
    again = primary.connect()
    again.open_all(primary.segments)
    two = again.sessions[primary.segments[1].name]
    assert two not in follower.sessions.values(), "a late reply cannot be taken for one of the new stream"
    assert again.entries() == {two: (0, 1)}
    again.reply((two, end_reply(1)))
    eventually(lambda: primary.watermark(1) == 1)


def test_a_segment_that_the_follower_has_not_opened_holds_up_no_other(primary: Primary) -> None:
    primary.start()
    follower = primary.connect()
    first = primary.segments[0].name
    attempts = 0
    while attempts < 3:
        message = follower.next()
        replies = []
        for part in message.parts:
            if not part.HasField("open"):
                continue
            if part.open.segment == first:
                attempts += 1
                answer = pb.ReplicationReply(error=error_to_pb(NotHosted("not open yet")))
            else:
                answer = pb.ReplicationReply(end=0, credit=CREDIT)
            replies.append((part.session, answer))
        follower.reply(*replies)
    eventually(lambda: primary.segments[1].machine.available_bytes() > 0)
    assert primary.segments[0].machine.available_bytes() == 0
    assert not primary.segments[0].links[0].unresponsive(), "it has answered"
    follower.open_all(primary.segments[:1])  # its last number is answered already, or a new one comes
    eventually(lambda: primary.segments[0].machine.available_bytes() > 0)


def test_a_fenced_follower_is_reported_once_and_the_other_segment_goes_on(primary: Primary) -> None:
    follower = opened(primary)
    one, two = (follower.sessions[hosted.name] for hosted in primary.segments)
    primary.append(0)
    assert follower.entries() == {one: (0, 1)}
    follower.reply((one, pb.ReplicationReply(error=error_to_pb(SegmentSealed("fenced")))))
    eventually(lambda: primary.fenced == [primary.segments[0].name])
    primary.append(1)
    assert follower.entries() == {two: (0, 1)}
    assert primary.watermark(0) == 0


def test_a_fenced_segment_leaves_the_stream(primary: Primary) -> None:
    follower = opened(primary)
    one = follower.sessions[primary.segments[0].name]
    primary.fence(primary.segments[0])
    follower.wait_closed(one)
    primary.append(1)
    assert follower.entries() == {follower.sessions[primary.segments[1].name]: (0, 1)}


def test_a_segment_with_much_to_send_uses_a_bulk_lane_and_holds_up_no_other(primary: Primary) -> None:
    follower = opened(primary)
    one, two = (follower.sessions[hosted.name] for hosted in primary.segments)
    primary.append(0, BULK_BYTES + 1)
    bulk = primary.connect_bulk(follower)
    assert bulk.entries() == {one: (0, 1)} and bulk.rows_beside
    primary.append(1)
    assert follower.entries() == {two: (0, 1)}
    assert one not in follower.closed, "its session goes on"
    bulk.reply((one, end_reply(1)))
    eventually(lambda: primary.watermark(0) == 1)


def test_a_small_batch_waits_while_a_bulk_one_of_its_segment_is_unanswered(primary: Primary, no_updates: None) -> None:
    follower = opened(primary)
    one, two = (follower.sessions[hosted.name] for hosted in primary.segments)
    primary.append(0, BULK_BYTES + 1)
    bulk = primary.connect_bulk(follower)
    assert bulk.entries() == {one: (0, 1)}
    primary.append(0)
    primary.append(0)
    primary.append(1)
    assert follower.entries() == {two: (0, 1)}, "the other segment does not wait"
    follower.reply((two, end_reply(1)))
    bulk.reply((one, end_reply(1)))
    assert follower.entries() == {one: (1, 2)}
    follower.reply((one, end_reply(3)))
    eventually(lambda: primary.watermark(0) == 3)


def test_a_bulk_batch_waits_while_a_small_one_of_its_segment_is_unanswered(primary: Primary, no_updates: None) -> None:
    follower = opened(primary)
    one = follower.sessions[primary.segments[0].name]
    eventually(primary.segments[0].links[0].can_send_now)
    primary.append(0)
    assert follower.entries() == {one: (0, 1)}
    primary.append(0, BULK_BYTES + 1)
    eventually(lambda: primary.connection.machine._sessions[one].waits_for not in (None, SMALL))
    bulk = primary.connect_bulk(follower)
    assert bulk.stream.requests.empty()
    follower.reply((one, end_reply(1)))
    assert bulk.entries() == {one: (1, 1)}


def test_bulk_batches_do_not_wait_for_each_other(primary: Primary, no_updates: None) -> None:
    follower = opened(primary)
    one = follower.sessions[primary.segments[0].name]
    primary.append(0, BULK_BYTES + 1)
    bulk = primary.connect_bulk(follower)
    assert bulk.entries() == {one: (0, 1)}
    primary.append(0, BULK_BYTES + 1)
    assert bulk.entries() == {one: (1, 1)}


def test_a_bulk_lane_that_breaks_ends_the_connection_and_nothing_is_lost(primary: Primary) -> None:
    follower = opened(primary)
    primary.append(0, BULK_BYTES + 1)
    bulk = primary.connect_bulk(follower)
    assert bulk.entries() == {follower.sessions[primary.segments[0].name]: (0, 1)}
    bulk.stream.break_connection()
    again = primary.connect()
    again.open_all(primary.segments)
    bulk = primary.connect_bulk(again)
    one = again.sessions[primary.segments[0].name]
    assert bulk.entries() == {one: (0, 1)}
    bulk.reply((one, end_reply(1)))
    eventually(lambda: primary.watermark(0) == 1)


def test_an_unused_bulk_lane_is_closed_and_another_one_opened(
    primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary.times(heartbeat_seconds=0.05, update_seconds=3600.0)
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.3)
    follower = opened(primary)
    one = follower.sessions[primary.segments[0].name]
    for sent in range(2):
        primary.append(0, BULK_BYTES + 1)
        bulk = primary.connect_bulk(follower)
        assert bulk.entries() == {one: (sent, 1)}
        bulk.reply((one, end_reply(sent + 1)))

        def is_closed(lane: Follower = bulk) -> bool:
            if not isinstance(lane.stream.requests.get(timeout=HANG_GUARD), Chunk):
                return True
            lane.reply()
            return False

        eventually(is_closed)
    assert primary.watermark(0) == 2
    assert primary.streams.empty(), "the connection goes on"


def test_bulk_goes_on_the_small_lane_if_no_thread_can_be_started(
    primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = opened(primary)

    def fail(_: object) -> None:
        raise Unavailable("no more threads")

    monkeypatch.setattr(primary.broker.threads, "start", fail)
    primary.append(0, BULK_BYTES + 1)
    assert follower.entries() == {follower.sessions[primary.segments[0].name]: (0, 1)}


def test_an_error_in_the_thread_of_a_bulk_lane_opens_the_connection_again(
    primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(primary)
    send = Lane._send
    with monkeypatch.context() as broken:

        def fail(lane: Lane, *args: Any, **kwargs: Any) -> bool:
            if lane.number != SMALL:
                raise ValueError("unexpected")
            return send(lane, *args, **kwargs)

        broken.setattr(Lane, "_send", fail)
        primary.append(0, BULK_BYTES + 1)
        primary.bulk_streams.get(timeout=HANG_GUARD).write(pb.ReplicationFrameReply().SerializeToString())
        again = primary.connect()
    again.open_all(primary.segments)
    bulk = primary.connect_bulk(again)
    assert bulk.entries() == {again.sessions[primary.segments[0].name]: (0, 1)}
    assert primary.broker.threads.process_failure is None


def test_a_heartbeat_confirms_the_credit_of_an_idle_segment(primary: Primary) -> None:
    primary.times(heartbeat_seconds=0.01)
    follower = opened(primary)
    one = follower.sessions[primary.segments[0].name]
    follower.reply((one, end_reply(0, credit=CREDIT // 2)))

    def confirmed() -> bool:
        message = follower.next()
        follower.reply()
        return any(
            part.session == one and pb.ReplicationBatch.FromString(part.header).credit == CREDIT // 2
            for part in message.parts
        )

    eventually(confirmed, pause=0.0)
    assert primary.segments[0].machine.available_bytes() == CREDIT // 2


def test_credit_is_what_the_follower_granted_last(primary: Primary) -> None:
    hosted = primary.segments[0]
    assert hosted.machine.available_bytes() == 0, "none before the follower is connected"
    primary.start()
    follower = primary.connect()
    follower.open_all(primary.segments, credit=5000)
    eventually(lambda: hosted.machine.available_bytes() == 5000)
    primary.append()
    one = follower.sessions[hosted.name]
    assert follower.entries() == {one: (0, 1)}
    assert hosted.machine.available_bytes() == 4000
    follower.reply((one, end_reply(1, credit=9000)))
    eventually(lambda: hosted.machine.available_bytes() == 8000)


def test_a_follower_that_does_not_answer_is_unresponsive_for_all_segments(
    primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "UNRESPONSIVE_AFTER_SECONDS", 0.0)
    follower = opened(primary)
    primary.append()
    follower.entries()
    eventually(lambda: all(hosted.links[0].unresponsive() for hosted in primary.segments))
    follower.stream.break_connection()
    eventually(lambda: primary.streams.qsize() == 1)
    assert primary.segments[1].links[0].unresponsive(), "a new connection is no answer"


def test_a_stream_whose_thread_dies_fences_its_segments(primary: Primary, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr(Lane, "_send_loop", fail)
    primary.start()
    eventually(lambda: all(hosted.machine.state is ReplicaState.FENCED for hosted in primary.segments))
    assert primary.broker.threads.process_failure is None


def test_an_error_while_replies_are_read_reopens_the_stream(primary: Primary, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = opened(primary)
    apply: Callable[..., bool] = ReplicaSession.apply
    failures = [ValueError("unexpected")]

    def fail_once(session: object, reply: object) -> bool:
        if failures:
            raise failures.pop()
        return apply(session, reply)

    monkeypatch.setattr(ReplicaSession, "apply", fail_once)
    primary.append()
    one = follower.sessions[primary.segments[0].name]
    assert follower.entries() == {one: (0, 1)}
    follower.reply((one, end_reply(1)))
    again = primary.connect()
    again.open_all(primary.segments[1:])
    again.open_all(primary.segments[:1], end=1)
    eventually(lambda: primary.watermark() == 1)
