"""A follower answers each frame of a lane once; an error ends one segment's session and no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from smq_broker.access.callers import OPEN_CALLER
from smq_broker.replication import follower_lane
from smq_broker.replication.connection import NO_SCHEMA
from smq_broker.replication.follower import FollowedSegment
from smq_broker.replication.follower_lane import FollowerLane, PrimaryConnections
from smq_broker.rows.payloads import BLOCKS_PER_COMPACTION, rows_as_batch
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.streams.batch_reader import BatchReader
from smq_core.errors import (
    InvalidRequest,
    NotHosted,
    SchemaMismatch,
    SegmentSealed,
    SmqError,
    Unavailable,
    WrongIncarnation,
)
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.flight_streams import PutStream
from support.processes.broker import make_segment, make_topic

TOPIC = make_topic()


class Follower:
    """A broker that follows two segments of another one, as sessions 1 and 2."""

    def __init__(self) -> None:
        network: dict[str, BrokerParts] = {}
        store = open_store("memory://")
        self.primary = BrokerParts("b1", store, network)
        self.broker = BrokerParts("b2", store, network)
        made = [make_segment(TOPIC, self.primary.replica, self.broker.replica, number=number) for number in range(2)]
        self.segments: list[HostedSegment] = [self.broker.opener.open(TOPIC, segment) for segment in made]
        self.stream = PutStream(NO_SCHEMA)
        self.connections = PrimaryConnections()
        self.served = self.lane(self.stream)

    def lane(self, stream: PutStream, primary: str = "i-b1", lane: pb.Lane = pb.LANE_SMALL) -> FollowerLane:
        return FollowerLane(
            self.broker.registry,
            caller=OPEN_CALLER,
            connections=self.connections,
            hello=self.hello(primary, lane),
            reader=BatchReader(stream),
            writer=stream,
        )

    def hello(self, primary: str, lane: pb.Lane) -> pb.PutOpen:
        hello = pb.ReplicaHello(primary_incarnation=primary, connection="one", lane=lane)
        return pb.PutOpen(incarnation=self.broker.replica.incarnation, replica=hello)

    def send(self, *parts: pb.ReplicationFrame.Part) -> None:
        self.stream.write_metadata(pb.ReplicationFrame(parts=parts, number=1).SerializeToString())

    def serve(self) -> list[dict[int, pb.ReplicationReply]]:
        """Serves what was sent, and returns the replies to each message."""
        self.stream.done_writing()
        self.served.serve()
        replies = []
        while not self.stream.replies.empty():
            body = self.stream.replies.get()
            assert isinstance(body, bytes)
            reply = pb.ReplicationFrameReply.FromString(body)
            replies.append({part.session: part.reply for part in reply.parts})
        assert replies[0] == {}, "the first reply comes at once"
        return replies[1:]

    def ends(self) -> list[int]:
        return [hosted.machine.end for hosted in self.segments]


def opening(session: int, segment: str) -> pb.ReplicationFrame.Part:
    request = pb.ReplicationFrame.Open(segment=segment, uid=TOPIC.uid)
    return pb.ReplicationFrame.Part(session=session, open=request)


def entry(
    session: int, first: int, values: list[bytes], *, said: int | None = None, small: bool = False
) -> pb.ReplicationFrame.Part:
    one = pb.ReplicationBatch.Entry(
        producer="p", epoch=1, sequence=first, instance="p-1", rows=said or len(values), appended=5
    )
    header = pb.ReplicationBatch(base_offset=first, entries=[one], watermark=0)
    if small:
        count = len(values)
        header.small_batch.CopyFrom(pb.SmallBatch(partitions=[0] * count, timestamps=[5] * count, values=values))
        return pb.ReplicationFrame.Part(session=session, header=header.SerializeToString())
    return pb.ReplicationFrame.Part(
        session=session, header=header.SerializeToString(), rows=rows(values).serialize().to_pybytes()
    )


def error_of(reply: pb.ReplicationReply) -> SmqError:
    assert reply.HasField("error")
    return error_from_pb(reply.error)


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    monkeypatch.setattr(follower_lane, "CHECK_SECONDS", 3600.0)
    yield Follower()


@pytest.fixture
def opened(follower: Follower) -> Follower:
    follower.send(*(opening(session, hosted.name) for session, hosted in enumerate(follower.segments, 1)))
    return follower


@pytest.mark.parametrize(
    "encoded", [b"\0\0\0\0", b"\xff\xff\xff\xff\0\0\0\0", b"x" * 40, b"\xff\xff\xff\xff\x10\0\0\0"]
)
def test_rows_that_end_early_end_one_session(opened: Follower, encoded: bytes) -> None:
    bad = entry(1, 0, [b"a"])
    bad.rows = encoded
    opened.send(bad, entry(2, 0, [b"b"]))
    _, reply = opened.serve()
    assert isinstance(error_of(reply[1]), InvalidRequest) and reply[2].end == 1


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_rows_are_refused_before_they_are_read(opened: Follower, codec: str) -> None:
    bomb = entry(1, 0, [bytes(1 << 24)])
    options = pa.ipc.IpcWriteOptions(compression=codec)
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, rows([b""]).schema, options=options).write_batch(rows([bytes(1 << 24)]))
    stream = pa.ipc.MessageReader.open_stream(sink.getvalue())
    stream.read_next_message()
    bomb.rows = stream.read_next_message().serialize().to_pybytes()
    before = pa.total_allocated_bytes()
    opened.send(bomb, entry(2, 0, [b"b"]))
    _, reply = opened.serve()
    assert "compressed" in error_of(reply[1]).message and reply[2].end == 1
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_a_stream_with_columns_is_refused_before_it_is_read(follower: Follower) -> None:
    follower.stream.schema = rows([b"a"]).schema
    follower.send(opening(1, follower.segments[0].name))
    follower.stream.done_writing()
    with pytest.raises(InvalidRequest, match="has no columns"):
        follower.served.serve()
    assert follower.stream.requests.qsize() == 2, "nothing was read"


def test_a_bug_at_one_segment_ends_one_session(opened: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    replicate = FollowedSegment.replicate

    def fail_for_the_first(followed: FollowedSegment, *args: Any, **kwargs: Any) -> pb.ReplicationReply:
        if followed.hosted is opened.segments[0]:
            raise KeyError("bug")
        return replicate(followed, *args, **kwargs)

    monkeypatch.setattr(FollowedSegment, "replicate", fail_for_the_first)
    opened.send(entry(1, 0, [b"a"]), entry(2, 0, [b"b"]))
    _, reply = opened.serve()
    assert "KeyError" in error_of(reply[1]).message and reply[2].end == 1


def test_one_reply_answers_the_parts_of_all_segments(opened: Follower) -> None:
    opened.send(entry(1, 0, [b"a"]), entry(2, 0, [b"b", b"c"]))
    first, second = opened.serve()
    assert {session: reply.end for session, reply in first.items()} == {1: 0, 2: 0}
    assert all(reply.credit for reply in first.values())
    assert {session: reply.end for session, reply in second.items()} == {1: 1, 2: 2}
    assert opened.ends() == [1, 2]


@pytest.mark.parametrize("small", [False, True], ids=["an Arrow batch", "a small batch"])
def test_the_rows_arrive_as_they_were(opened: Follower, small: bool) -> None:
    opened.send(entry(1, 0, [b"a", b"b"], small=small))
    opened.serve()
    hosted = opened.segments[0]
    with hosted as machine:
        kept = rows_as_batch(machine.tail, hosted.wire.empty)
    assert kept.column("value").to_pylist() == [b"a", b"b"]


def test_small_batches_are_joined_when_there_are_many(opened: Follower) -> None:
    for first in range(BLOCKS_PER_COMPACTION):
        opened.send(entry(1, first, [b"%d" % first], small=True))
    opened.serve()
    hosted = opened.segments[0]
    with hosted as machine:
        blocks = {id(it.batch.payload.location[0]) for it in machine.tail}  # type: ignore[attr-defined]
        kept = rows_as_batch(machine.tail, hosted.wire.empty)
    assert len(blocks) == 1
    assert kept.column("value").to_pylist() == [b"%d" % first for first in range(BLOCKS_PER_COMPACTION)]


def test_a_segment_whose_primary_has_left_knows_it(opened: Follower) -> None:
    opened.send(pb.ReplicationFrame.Part(session=1, close=True), entry(1, 0, [b"late"]))
    assert opened.serve()[1] == {}, "what comes after the end of a session is dropped"
    assert opened.ends() == [0, 0]
    assert all(hosted.primary_lost for hosted in opened.segments), "the stream has ended, too"


def test_an_unknown_segment_is_refused_at_once_and_the_others_go_on(follower: Follower) -> None:
    follower.send(opening(1, "t-0-9-9"), opening(2, follower.segments[1].name))
    follower.send(entry(1, 0, [b"a"]), entry(2, 0, [b"b"]))
    first, second = follower.serve()
    assert isinstance(error_of(first[1]), NotHosted)
    assert {session: reply.end for session, reply in second.items()} == {2: 1}


@pytest.mark.parametrize("caller", ["i-b2", "i-b1-before", ""])
def test_nobody_but_the_primary_replicates(follower: Follower, caller: str) -> None:
    follower.served = follower.lane(follower.stream, caller)
    follower.send(opening(1, follower.segments[0].name))
    follower.send(entry(1, 0, [b"a"]))
    first, second = follower.serve()
    assert isinstance(error_of(first[1]), WrongIncarnation)
    assert second == {} and follower.ends() == [0, 0]


@pytest.mark.parametrize(
    "bad",
    [
        entry(1, 0, [b"a", b"b"], said=1),
        entry(1, 0, [b"a", b"b"], said=1, small=True),
        pb.ReplicationFrame.Part(
            session=1, header=entry(1, 0, [b"a"], small=True).header, rows=entry(1, 0, [b"a"]).rows
        ),
        pb.ReplicationFrame.Part(session=1, header=entry(1, 0, [b"a"]).header, rows=b"no rows"),
        pb.ReplicationFrame.Part(session=1, header=entry(1, 0, [b"a"]).header),
        pb.ReplicationFrame.Part(session=1, header=b"\xff\xff"),
    ],
    ids=[
        "row counts",
        "row counts of a small batch",
        "rows in both forms",
        "malformed rows",
        "no rows",
        "malformed header",
    ],
)
def test_a_bad_part_ends_its_session_only(opened: Follower, bad: pb.ReplicationFrame.Part) -> None:
    opened.send(bad, entry(2, 0, [b"b"]))
    opened.send(entry(1, 0, [b"a"]), entry(2, 1, [b"c"]))
    _, second, third = opened.serve()
    assert isinstance(error_of(second[1]), InvalidRequest)
    assert second[2].end == 1
    assert set(third) == {2} and opened.ends() == [0, 2]


def test_a_number_is_used_once(opened: Follower) -> None:
    opened.send(opening(1, opened.segments[0].name))
    assert isinstance(error_of(opened.serve()[1][1]), InvalidRequest)


def test_the_primary_learns_from_a_heartbeat_which_segments_were_fenced(
    opened: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_lane, "CHECK_SECONDS", 0.0)
    receive = opened.served._receive

    def fence_after_the_first(message: pb.ReplicationFrame, beside: pa.RecordBatch | None) -> None:
        receive(message, beside)
        with opened.segments[0] as machine:
            machine.fence()

    monkeypatch.setattr(opened.served, "_receive", fence_after_the_first)
    opened.send()
    second = opened.serve()[1]
    assert isinstance(error_of(second[1]), SegmentSealed)
    assert 2 not in second


def test_a_heartbeat_announces_another_credit(opened: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_lane, "CHECK_SECONDS", 0.0)
    credits = iter([1000, 1000, 900, 900])
    monkeypatch.setattr(opened.segments[0].memory, "adjust_credit", lambda _: next(credits))
    for _ in range(3):
        opened.send()
    replies = opened.serve()
    assert [reply[1].credit for reply in replies[1:] if 1 in reply] == [900]


# ---- bulk lanes


def bulk_frame(
    stream: PutStream, part: pb.ReplicationFrame.Part, values: list[bytes], *, parts: int = 1, schema: pa.Schema = None
) -> None:
    """The rows of the part beside its frame."""
    header = pb.ReplicationFrame.Part(session=part.session, header=part.header)
    batch = rows(values) if schema is None else pa.RecordBatch.from_arrays([pa.array([1])], schema=schema)
    stream.write_with_metadata(batch, pb.ReplicationFrame(parts=[header] * parts, number=1).SerializeToString())


def serve_bulk(follower: Follower, stream: PutStream) -> list[pb.ReplicationFrameReply]:
    """Serves a bulk lane while the small lane, on which both sessions were opened, is being served."""
    stream.done_writing()
    handle = follower.served._receive

    def serve_within(frame: pb.ReplicationFrame, batch: pa.RecordBatch | None) -> None:
        handle(frame, batch)
        follower.lane(stream, lane=pb.LANE_BULK).serve()

    follower.served._receive = serve_within  # type: ignore[method-assign]
    follower.serve()
    return [pb.ReplicationFrameReply.FromString(body) for body in iter_replies(stream)]


def iter_replies(stream: PutStream) -> Iterator[bytes]:
    while not stream.replies.empty():
        body = stream.replies.get()
        assert isinstance(body, bytes)
        yield body


def test_the_rows_of_a_bulk_lane_come_beside_its_frames(opened: Follower) -> None:
    stream = PutStream(rows([b"a"]).schema)
    bulk_frame(stream, entry(1, 0, [b"a", b"b"]), [b"a", b"b"])
    first, second = serve_bulk(opened, stream)
    assert not first.parts and [(it.session, it.reply.end) for it in second.parts] == [(1, 2)]
    hosted = opened.segments[0]
    with hosted as machine:
        assert rows_as_batch(machine.tail, hosted.wire.empty).column("value").to_pylist() == [b"a", b"b"]


def test_rows_of_another_schema_end_one_session(opened: Follower) -> None:
    schema = pa.schema([("n", pa.int64())])
    stream = PutStream(schema)
    bulk_frame(stream, entry(1, 0, [b"a"]), [], schema=schema)
    _, reply = serve_bulk(opened, stream)
    assert isinstance(error_of(reply.parts[0].reply), SchemaMismatch)
    assert opened.ends() == [0, 0] and set(opened.served._sessions) == set(), "the small lane has ended, too"


def test_a_session_is_not_opened_on_a_bulk_lane(opened: Follower) -> None:
    stream = PutStream(rows([b"a"]).schema)
    stream.write_metadata(pb.ReplicationFrame(parts=[opening(3, opened.segments[0].name)]).SerializeToString())
    _, reply = serve_bulk(opened, stream)
    assert isinstance(error_of(reply.parts[0].reply), InvalidRequest)


@pytest.mark.parametrize("parts", [0, 2])
def test_rows_beside_a_frame_belong_to_its_only_part(opened: Follower, parts: int) -> None:
    stream = PutStream(rows([b"a"]).schema)
    bulk_frame(stream, entry(1, 0, [b"a"]), [b"a"], parts=parts)
    with pytest.raises(InvalidRequest, match=f"came with {parts} parts"):
        serve_bulk(opened, stream)


def test_a_bulk_lane_needs_the_small_lane_of_its_connection(follower: Follower) -> None:
    stream = PutStream(rows([b"a"]).schema)
    with pytest.raises(Unavailable, match="no small lane"):
        follower.lane(stream, lane=pb.LANE_BULK).serve()
    (body,) = iter_replies(stream)
    assert pb.ReplicationFrameReply.FromString(body).HasField("error")


def test_a_connection_has_one_small_lane(follower: Follower) -> None:
    follower.connections.begin(pb.ReplicaHello(primary_incarnation="i-b1", connection="one"))
    with pytest.raises(InvalidRequest, match="one small lane"):
        follower.served.serve()
