"""Links of several segments over one stream to their follower's broker, which the test plays."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator

import pyarrow.flight as fl
import pytest

from smq_broker.replication import follower_link, message_spacing, own_stream, shared_stream
from smq_broker.replication import stream as replication_stream
from smq_broker.replication.follower_link import FollowerLink
from smq_broker.replication.link_state import LARGE_BYTES, OWN_STREAM_BYTES
from smq_broker.replication.message_spacing import ClientActivity
from smq_broker.replication.shared_stream import SharedReplicationStream
from smq_broker.replication.shared_streams import SharedReplicationStreams
from smq_broker.rows.payloads import Payload
from smq_broker.rows.small_batches import Block, SmallBatch
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import NotHosted, SegmentSealed, SmqError, Unavailable
from smq_core.model.entities import Replica
from smq_core.replica.log_entries import BatchId, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import error_to_pb
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
        self.own_streams: queue.Queue[PutStream] = queue.Queue()
        self.fenced: list[str] = []
        self.shared = SharedReplicationStreams("i-b1", self.broker.threads, self.broker.clients, lambda _: self.client)
        self.segments = [self._open(number) for number in range(2)]

    def _open(self, number: int) -> HostedSegment:
        topic = make_topic()
        segment = make_segment(topic, self.broker.replica, FOLLOWER, number=number)
        self.broker.opener._start_primary = lambda hosted: None  # type: ignore[method-assign]
        hosted = self.broker.opener.open(topic, segment)
        link = FollowerLink(
            hosted,
            FOLLOWER,
            self._on_fenced,
            lambda: self.fence(hosted),
            streams=self.shared,
            threads=self.broker.threads,
            connect_flight=lambda _: self.client,
        )
        hosted.links = [link]
        return hosted

    def _on_fenced(self, hosted: HostedSegment) -> None:
        self.fenced.append(hosted.name)
        self.fence(hosted)

    def _handle(self, command: bytes, stream: PutStream) -> None:
        is_shared = pb.PutOpen.FromString(command).WhichOneof("role") == "shared_replica"
        (self.streams if is_shared else self.own_streams).put(stream)
        while not stream.broken.wait(0.005) and not stream.client_done.is_set():
            pass

    def start(self) -> None:
        for hosted in self.segments:
            hosted.links[0].start()

    def connect(self) -> Follower:
        """The follower's end of the next shared stream."""
        follower = Follower(self.streams.get(timeout=HANG_GUARD))
        follower.stream.write(pb.SharedReplicationReply().SerializeToString())
        return follower

    def append(
        self, number: int = 0, nbytes: int = 1000, *, sends_now: bool = False, block: Block | None = None
    ) -> None:
        hosted = self.segments[number]
        with hosted as machine:
            id_ = BatchId("p", 1, machine.counters.batches, "one")
            machine.append(self, IncomingBatch(id_, 1, nbytes, 0, 0, Payload(block or rows([b"v"]))), 0)
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
    """What the test has received on one shared stream; ``links`` are the numbers of the segments there."""

    def __init__(self, stream: PutStream) -> None:
        self.stream = stream
        self.links: dict[str, int] = {}
        self.closed: list[int] = []
        self.small_batches: list[pb.SmallBatch] = []
        self.sent_watermarks: dict[int, int] = {}
        """In the last entries of each link."""

    def reply(self, *parts: tuple[int, pb.ReplicationReply]) -> None:
        answer = pb.SharedReplicationReply()
        for link, reply in parts:
            answer.parts.add(link=link, reply=reply)
        self.stream.write(answer.SerializeToString())

    def next(self) -> pb.SharedReplicationBatch:
        """The next message; opened and closed links are noted."""
        chunk = self.stream.requests.get(timeout=HANG_GUARD)
        assert isinstance(chunk, Chunk), "the stream ended"
        assert chunk.app_metadata, "Flight drops empty metadata"
        message = pb.SharedReplicationBatch.FromString(chunk.app_metadata)
        for part in message.parts:
            if part.HasField("open"):
                self.links[part.open.segment] = part.link
            if part.close:
                self.closed.append(part.link)
        return message

    def open_all(self, segments: list[HostedSegment], *, end: int = 0, credit: int = CREDIT) -> None:
        """Answers that these segments are open here. Each message is answered once, as followers do."""
        missing = {hosted.name for hosted in segments}
        opened = pb.ReplicationReply(end=end, credit=credit)
        while missing:
            self.next()
            found = missing & set(self.links)
            missing -= found
            self.reply(*((self.links[name], opened) for name in sorted(found)))

    def watermarks(self, segments: list[HostedSegment]) -> None:
        """Answers messages until each of these segments has been sent its watermark."""
        missing = {self.links[hosted.name] for hosted in segments}
        while missing:
            missing -= {part.link for part in self.next().parts if part.header}
            self.reply()

    def wait_closed(self, link: int) -> None:
        """Answers messages until the primary has ended this link."""

        def is_closed() -> bool:
            self.next()
            self.reply()
            return link in self.closed

        eventually(is_closed, pause=0.0)

    def entries(self) -> dict[int, tuple[int, int]]:
        """Of the next message that has any: for each link the first offset and the number of entries.

        Messages without are answered.
        """
        while True:
            message = self.next()
            found = {}
            for part in message.parts:
                header = pb.ReplicationBatch.FromString(part.header)
                if header.entries:
                    assert bool(part.rows) != header.HasField("small_batch"), "entries come with their rows"
                    self.small_batches += [header.small_batch] if header.HasField("small_batch") else []
                    found[part.link] = (header.base_offset, len(header.entries))
                    self.sent_watermarks[part.link] = header.watermark
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
def no_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent but entries."""
    monkeypatch.setattr(shared_stream, "UPDATE_DELAY_SECONDS", 3600.0)
    monkeypatch.setattr(shared_stream, "HEARTBEAT_SECONDS", 3600.0)


def test_segments_with_the_same_follower_share_a_stream(primary: Primary) -> None:
    follower = opened(primary)
    assert len(primary.client.streams) == 1
    assert len(set(follower.links.values())) == 2


def test_what_comes_while_a_message_is_unanswered_goes_out_as_one_for_all_segments(
    primary: Primary, no_updates: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_stream, "MAX_HOLD_SECONDS", 3600.0)
    follower = opened(primary)
    one, two = (follower.links[hosted.name] for hosted in primary.segments)
    eventually(primary.segments[0].links[0].can_send_now)
    primary.append()
    assert follower.entries() == {one: (0, 1)}
    stream = primary.segments[0].links[0]._shared._stream
    assert isinstance(stream, SharedReplicationStream)
    assert stream._held_until(time.monotonic()) > time.monotonic(), "its thread need not look for that to be seen"
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
    one, two = (follower.links[hosted.name] for hosted in primary.segments)
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
    link = follower.links[primary.segments[0].name]
    eventually(primary.segments[0].links[0].can_send_now)
    primary.append(block=SmallBatch([0], [5], [], [b"small"]))
    assert follower.entries() == {link: (0, 1)}
    assert [list(it.values) for it in follower.small_batches] == [[b"small"]]
    follower.reply((link, end_reply(1)))
    primary.append()
    assert follower.entries() == {link: (1, 1)}
    assert len(follower.small_batches) == 1, "an Arrow batch stays one"


def test_entries_take_the_watermark_along(primary: Primary, no_updates: None) -> None:
    """Otherwise a busy segment would send it alone, too, fifty times a second."""
    follower = opened(primary)
    (stream,) = primary.shared._streams.values()
    link = follower.links[primary.segments[0].name]
    eventually(primary.segments[0].links[0].can_send_now)
    primary.append()
    assert follower.entries() == {link: (0, 1)}
    follower.reply((link, end_reply(1)))
    other = follower.links[primary.segments[1].name]
    primary.append(1)
    assert follower.entries() == {other: (0, 1)}
    follower.reply((other, end_reply(1)))
    eventually(lambda: {it.number for it in list(stream._progress)} == {link, other}, "watermarks are to be sent")
    primary.append()
    assert follower.entries() == {link: (1, 1)}
    assert follower.sent_watermarks == {link: 1, other: 0}, "it was in that message"
    assert [it.number for it in list(stream._progress)] == [other]


def test_the_watermarks_of_quiet_segments_share_a_message(primary: Primary, no_updates: None) -> None:
    follower = opened(primary)
    (stream,) = primary.shared._streams.values()
    links = [follower.links[hosted.name] for hosted in primary.segments]
    for number, link in enumerate(links):
        eventually(primary.segments[number].links[0].can_send_now)
        primary.append(number)
        assert follower.entries() == {link: (0, 1)}
        follower.reply((link, end_reply(1)))
    eventually(lambda: len(stream._progress) == 2)
    with stream._wake:
        stream._progress[next(iter(stream._progress))] = 0.0  # its time has come, and the other one's has not
        stream._wake.notify()
    message = follower.next()
    headers = {part.link: pb.ReplicationBatch.FromString(part.header) for part in message.parts}
    assert {link: header.watermark for link, header in headers.items()} == dict.fromkeys(links, 1)


def test_a_quiet_segments_watermark_does_not_wait_for_a_heartbeat(
    primary: Primary, no_updates: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = opened(primary)
    link = follower.links[primary.segments[0].name]
    eventually(primary.segments[0].links[0].can_send_now)
    monkeypatch.setattr(shared_stream, "UPDATE_DELAY_SECONDS", 0.02)
    primary.append()
    assert follower.entries() == {link: (0, 1)}
    follower.reply((link, end_reply(1)))
    (part,) = follower.next().parts
    assert pb.ReplicationBatch.FromString(part.header).watermark == 1


def test_whoever_appends_to_several_segments_sends_one_message(primary: Primary, no_updates: None) -> None:
    follower = opened(primary)
    one, two = (follower.links[hosted.name] for hosted in primary.segments)
    eventually(primary.segments[0].links[0].can_send_now)
    primary.append(0, sends_now=True)
    primary.append(1, sends_now=True)
    for hosted in primary.segments:
        hosted.links[0].send_now()
    assert follower.entries() == {one: (0, 1), two: (0, 1)}


def test_what_was_not_answered_is_sent_again_over_the_next_stream(primary: Primary) -> None:
    follower = opened(primary)
    primary.append(1)
    assert follower.entries() == {follower.links[primary.segments[1].name]: (0, 1)}
    follower.stream.break_connection()
    again = primary.connect()
    again.open_all(primary.segments)
    two = again.links[primary.segments[1].name]
    assert two not in follower.links.values(), "a late reply cannot be taken for one of the new stream"
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
            replies.append((part.link, answer))
        follower.reply(*replies)
    eventually(lambda: primary.segments[1].machine.available_bytes() > 0)
    assert primary.segments[0].machine.available_bytes() == 0
    assert not primary.segments[0].links[0].unresponsive(), "it has answered"
    follower.open_all(primary.segments[:1])  # its last number is answered already, or a new one comes
    eventually(lambda: primary.segments[0].machine.available_bytes() > 0)


def test_a_fenced_follower_is_reported_once_and_the_other_segment_goes_on(primary: Primary) -> None:
    follower = opened(primary)
    one, two = (follower.links[hosted.name] for hosted in primary.segments)
    primary.append(0)
    assert follower.entries() == {one: (0, 1)}
    follower.reply((one, pb.ReplicationReply(error=error_to_pb(SegmentSealed("fenced")))))
    eventually(lambda: primary.fenced == [primary.segments[0].name])
    primary.append(1)
    assert follower.entries() == {two: (0, 1)}
    assert primary.watermark(0) == 0


def test_a_fenced_segment_leaves_the_stream(primary: Primary) -> None:
    follower = opened(primary)
    one = follower.links[primary.segments[0].name]
    primary.fence(primary.segments[0])
    follower.wait_closed(one)
    primary.append(1)
    assert follower.entries() == {follower.links[primary.segments[1].name]: (0, 1)}


def own_entries(stream: PutStream) -> tuple[int, int]:
    """The first offset and the number of the next entries. Messages without are answered."""
    while True:
        chunk = stream.requests.get(timeout=HANG_GUARD)
        assert isinstance(chunk, Chunk), "the stream ended"
        header = pb.ReplicationBatch.FromString(chunk.app_metadata or b"")
        if header.entries:
            return header.base_offset, len(header.entries)
        stream.write(end_reply(header.base_offset).SerializeToString())


def test_a_segment_with_much_to_send_gets_a_stream_of_its_own_until_it_is_quiet(
    primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = opened(primary)
    one = follower.links[primary.segments[0].name]
    primary.append(0, OWN_STREAM_BYTES + 1)
    stream = primary.own_streams.get(timeout=HANG_GUARD)
    follower.wait_closed(one)
    stream.write(pb.ReplicationReply(end=0, credit=CREDIT).SerializeToString())
    assert own_entries(stream) == (0, 1)
    primary.append(1)
    assert follower.entries() == {follower.links[primary.segments[1].name]: (0, 1)}, "the other one stays"

    monkeypatch.setattr(own_stream, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(own_stream, "QUIET_SECONDS", 0.0)
    stream.write(end_reply(1).SerializeToString())
    eventually(lambda: primary.watermark(0) == 1)
    follower.reply()

    def is_shared_again() -> bool:
        while not stream.requests.empty():
            if isinstance(stream.requests.get(), Chunk):
                stream.write(end_reply(1).SerializeToString())
        while not follower.stream.requests.empty():
            follower.next()
            follower.reply()
        return follower.links[primary.segments[0].name] != one

    eventually(is_shared_again)
    again = follower.links[primary.segments[0].name]
    follower.reply((again, pb.ReplicationReply(end=1, credit=CREDIT)))

    def sends_at_once() -> bool:
        while not follower.stream.requests.empty():
            follower.next()
            follower.reply()
        return primary.segments[0].links[0].can_send_now()

    eventually(sends_at_once)
    primary.append(0)
    assert follower.entries() == {again: (1, 1)}


def test_a_segment_that_can_get_no_threads_sends_much_over_the_shared_stream(
    primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_link, "RETRY_SECONDS", HANG_GUARD)
    follower = opened(primary)
    one = follower.links[primary.segments[0].name]

    def start(task: object) -> None:
        raise Unavailable("no more threads")

    monkeypatch.setattr(primary.broker.threads, "start", start)
    primary.append(0, OWN_STREAM_BYTES + 1)

    def is_shared_again() -> bool:
        follower.next()
        follower.reply()
        return follower.links[primary.segments[0].name] != one

    eventually(is_shared_again)
    again = follower.links[primary.segments[0].name]
    follower.reply((again, end_reply(0)))
    assert follower.entries() == {again: (0, 1)}


def test_what_gathers_while_a_segment_is_sealed_does_not_cost_its_successor_a_stream(primary: Primary) -> None:
    follower = opened(primary)
    primary.append(0, LARGE_BYTES + 1)
    assert follower.entries() == {follower.links[primary.segments[0].name]: (0, 1)}
    assert primary.own_streams.empty()


def test_a_segment_gets_its_own_stream_also_if_the_connection_breaks_when_it_leaves(
    primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = opened(primary)

    def fail(_: bytes) -> None:
        raise fl.FlightUnavailableError("connection reset")

    monkeypatch.setattr(follower.stream, "write_metadata", fail)
    primary.append(0, OWN_STREAM_BYTES + 1)
    stream = primary.own_streams.get(timeout=HANG_GUARD)
    stream.write(pb.ReplicationReply(end=0, credit=CREDIT).SerializeToString())
    assert own_entries(stream) == (0, 1)


def test_a_heartbeat_confirms_the_credit_of_an_idle_segment(primary: Primary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_stream, "HEARTBEAT_SECONDS", 0.01)
    follower = opened(primary)
    one = follower.links[primary.segments[0].name]
    follower.reply((one, end_reply(0, credit=CREDIT // 2)))

    def confirmed() -> bool:
        message = follower.next()
        follower.reply()
        return any(
            part.link == one and pb.ReplicationBatch.FromString(part.header).credit == CREDIT // 2
            for part in message.parts
        )

    eventually(confirmed, pause=0.0)
    assert primary.segments[0].machine.available_bytes() == CREDIT // 2


def test_a_follower_that_does_not_answer_is_unresponsive_for_all_segments(
    primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication_stream, "UNRESPONSIVE_AFTER_SECONDS", 0.0)
    follower = opened(primary)
    primary.append()
    follower.entries()
    eventually(lambda: all(hosted.links[0].unresponsive() for hosted in primary.segments))
    follower.stream.break_connection()
    eventually(lambda: primary.streams.qsize() == 1)
    assert primary.segments[1].links[0].unresponsive(), "a new connection is no answer"


def test_a_stream_whose_thread_dies_fences_its_segments(primary: Primary, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr(shared_stream.SharedReplicationStream, "_send_loop", fail)
    primary.start()
    eventually(lambda: all(hosted.machine.state is ReplicaState.FENCED for hosted in primary.segments))
    assert primary.broker.threads.process_failure is None


def test_an_error_while_replies_are_read_reopens_the_stream(primary: Primary, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = opened(primary)
    apply: Callable[..., bool] = shared_stream.SharedLink.apply
    failures = [ValueError("unexpected")]

    def fail_once(link: object, reply: object) -> bool:
        if failures:
            raise failures.pop()
        return apply(link, reply)

    monkeypatch.setattr(shared_stream.SharedLink, "apply", fail_once)
    primary.append()
    one = follower.links[primary.segments[0].name]
    assert follower.entries() == {one: (0, 1)}
    follower.reply((one, end_reply(1)))
    again = primary.connect()
    again.open_all(primary.segments[1:])
    again.open_all(primary.segments[:1], end=1)
    eventually(lambda: primary.watermark() == 1)
