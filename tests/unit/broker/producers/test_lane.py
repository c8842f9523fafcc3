"""A lane that many producers share, at the broker and without a network: no session holds up or ends another one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from smq_broker.producers import producer_lane, session_port
from smq_broker.producers.session_port import SessionPort
from smq_broker.replication import message_spacing
from smq_core.errors import (
    InvalidRequest,
    MessageTooLarge,
    NotHosted,
    Overloaded,
    ProducerFenced,
    SchemaMismatch,
    SequenceGap,
)
from smq_core.model.entities import Column, Segment
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.in_memory.flight_streams import Chunk, PutStream
from support.processes.broker import make_segment, make_topic
from support.waiting import HANG_GUARD, eventually

# Session, sequence, values, partition.
Batch = tuple[int, int, list[bytes], int]


class LaneClient:
    """A client process with one lane to a broker with two Stored segments, 0-512 and 512-1024."""

    def __init__(self, schema: tuple[Column, ...] = (), lane: pb.Lane = pb.LANE_SMALL) -> None:
        self.broker = BrokerParts("b1", open_store("memory://"))
        self.topic = make_topic(schema=schema)
        self.low = make_segment(self.topic, self.broker.replica, stop=512)
        self.high = make_segment(self.topic, self.broker.replica, start=512, number=1)
        for segment in (self.low, self.high):
            self.broker.opener.open(self.topic, segment)
        self.stream = PutStream(self.hosted(self.low).wire.message)
        self.replies: dict[int, list[pb.ProducerReply]] = {}
        self.error: BaseException | None = None
        self.heartbeats = 0
        self.sessions_of_replies: list[list[int]] = []
        self.ended = threading.Event()
        self.lane = self.broker.lane(self.stream, self.broker.hello(self.topic.uid, lane))
        for run in (lambda: self.stream.serve(lambda _: self.lane.serve()), self._read):
            threading.Thread(target=run, name="client", daemon=True).start()

    def hosted(self, segment: Segment) -> Any:
        return self.broker.hosted(self.topic, segment)

    def send(
        self,
        *batches: Batch,
        opens: Sequence[tuple[int, Segment, str]] = (),
        closes: Sequence[int] = (),
        epoch: int = 1,
        small: bool = False,
    ) -> None:
        message = pb.ProducerFrame(closes=closes)
        for session, segment, name in opens:
            hello = pb.ProducerHello(producer=name, epoch=epoch, instance=f"{name}-{epoch}")
            message.opens.add(session=session, segment=segment.name, producer=hello)
        for session, sequence, values, _ in batches:
            message.sub_batches.add(session=session, sequence=sequence, rows=len(values))
        if small:
            message.small_batch.CopyFrom(small_batch(*batches))
            self.stream.write_metadata(message.SerializeToString())
        elif batches:
            whole = pa.concat_batches([rows(values, partition=partition) for _, _, values, partition in batches])
            self.stream.write_with_metadata(whole, message.SerializeToString())
        else:
            self.stream.write_metadata(message.SerializeToString())

    def flush(self) -> None:
        """Stored segments ack when the chunk is written."""
        self.broker.flusher.flush_next()

    def acks(self, session: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for reply in self.replies.get(session, []):
            found |= dict(enumerate(reply.acks.first_offsets, reply.acks.first_sequence))
        return found

    def wait_reply(self, session: int, kind: str) -> pb.ProducerReply:
        def found() -> pb.ProducerReply | None:
            return next((it for it in self.replies.get(session, []) if it.WhichOneof("reply") == kind), None)

        reply = eventually(found, what=f"session {session} gets {kind}: {self.replies}")
        assert reply is not None
        return reply

    def error_of(self, session: int) -> BaseException:
        return error_from_pb(self.wait_reply(session, "error").error)

    def end(self, segment: Segment) -> int:
        return int(self.hosted(segment).machine.end)

    def close(self) -> None:
        self.stream.done_writing()
        assert self.ended.wait(300)

    def _read(self) -> None:
        try:
            while (body := self.stream.read()) is not None:
                reply = pb.ProducerFrameReply.FromString(body)
                self.heartbeats += not reply.sessions
                if reply.HasField("error"):
                    self.error = error_from_pb(reply.error)
                self.sessions_of_replies.append(sorted(it.session for it in reply.sessions))
                for one in reply.sessions:
                    self.replies.setdefault(one.session, []).append(one.reply)
        except (pa.ArrowException, OSError):
            pass
        finally:
            self.ended.set()


@pytest.fixture
def client() -> Iterator[LaneClient]:
    made = LaneClient()
    yield made
    if not made.ended.is_set():
        made.close()


def small_batch(*batches: Batch) -> pb.SmallBatch:
    made = pb.SmallBatch()
    for _, _, values, partition in batches:
        made.partitions.extend([partition] * len(values))
        made.timestamps.extend([5] * len(values))
        made.values.extend(values)
    return made


def opened(client: LaneClient, *sessions: tuple[int, Segment, str]) -> None:
    client.send(opens=sessions)
    for session, _, _ in sessions:
        client.wait_reply(session, "opened")


@pytest.mark.parametrize("small", [False, True], ids=["an Arrow batch", "a small batch"])
def test_a_message_has_batches_of_several_producers_and_segments(client: LaneClient, small: bool) -> None:
    eventually(lambda: client.heartbeats, "the broker answers at once")
    opened(client, (1, client.low, "p"), (2, client.low, "q"), (3, client.high, "p"))
    client.send((1, 0, [b"a", b"b"], 1), (2, 0, [b"c"], 2), (3, 0, [b"d"], 600), small=small)
    eventually(lambda: client.end(client.low) == 3 and client.end(client.high) == 1)
    client.flush()
    client.flush()
    eventually(lambda: (client.acks(1), client.acks(2), client.acks(3)) == ({0: 0}, {0: 2}, {0: 0}))
    hosted = client.hosted(client.low)
    assert hosted.histogram.slices[0] == 3 and hosted.machine.counters.batches == 2
    assert stored_values(client, client.low) == [b"a", b"b", b"c"]
    assert stored_values(client, client.high) == [b"d"]


def test_a_small_batch_with_a_partition_of_another_segment_ends_its_session_only(client: LaneClient) -> None:
    opened(client, (1, client.low, "p"), (2, client.low, "q"))
    client.send((1, 0, [b"strange"], 600), (2, 0, [b"fine"], 1), small=True)
    assert isinstance(client.error_of(1), InvalidRequest)
    eventually(lambda: client.end(client.low) == 1)


def test_a_session_that_ends_while_its_batch_arrives_ends_no_other(client: LaneClient) -> None:
    """The replier removes it in another thread, at any time."""
    opened(client, (1, client.low, "p"), (2, client.low, "q"))
    client.lane._sessions = Vanishing(client.lane._sessions)
    client.send((1, 0, [b"a"], 1), (2, 0, [b"b"], 1))
    eventually(lambda: client.end(client.low) == 2)
    client.close()
    assert client.error is None


class Vanishing(dict[int, Any]):
    """Whoever has looked for a session does not find it again."""

    def get(self, key: int, default: Any = None) -> Any:
        return self.pop(key, default)


def test_a_small_batch_for_a_topic_with_a_schema_ends_its_session_only() -> None:
    client = LaneClient(schema=(Column("name", "string"),))
    opened(client, (1, client.low, "p"))
    client.send((1, 0, [b"a"], 1), small=True)
    assert isinstance(client.error_of(1), SchemaMismatch)
    opened(client, (2, client.low, "q"))
    client.close()


def stored_values(client: LaneClient, segment: Segment) -> list[bytes]:
    _, table = client.hosted(segment).chain.read(0)
    found: list[bytes] = table.column("value").to_pylist()
    return found


def test_a_wrong_sequence_ends_its_own_session_only(client: LaneClient) -> None:
    opened(client, (1, client.low, "p"), (2, client.low, "q"))
    client.send((1, 5, [b"gap"], 1), (2, 0, [b"fine"], 1))
    assert isinstance(client.error_of(1), SequenceGap)
    client.send((1, 0, [b"too late"], 1), (2, 1, [b"next"], 1))
    eventually(lambda: client.end(client.low) == 2)
    client.flush()
    eventually(lambda: client.acks(2) == {0: 0, 1: 1})
    assert len(client.hosted(client.low).streams) == 1


def test_a_segment_that_is_not_open_yet_holds_up_its_own_sessions_only(client: LaneClient) -> None:
    later = make_segment(client.topic, client.broker.replica, stop=512, number=2, predecessors=[client.low])
    client.broker.opener.open(client.topic, later)
    opened(client, (1, later, "p"), (2, client.high, "p"))
    client.send((1, 0, [b"early"], 1), (2, 0, [b"now"], 600))
    client.send((1, 1, [b"second"], 1))
    eventually(lambda: client.end(client.high) == 1)
    assert client.end(later) == 0
    client.broker.seal(client.topic, client.low)
    eventually(lambda: client.end(later) == 2, "it opens, and takes what has waited")


def test_a_stream_counts_as_an_active_client_while_it_brings_batches(
    client: LaneClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(client, (1, client.low, "p"))
    client.send((1, 0, [b"a"], 1))
    eventually(lambda: client.broker.clients.count == 1)
    monkeypatch.setattr(message_spacing, "IDLE_AFTER_SECONDS", 0.0)
    eventually(lambda: client.broker.clients.count == 0, "the next heartbeat finds it idle")
    monkeypatch.setattr(message_spacing, "IDLE_AFTER_SECONDS", 3600.0)
    client.send((1, 1, [b"b"], 1))
    eventually(lambda: client.broker.clients.count == 1)
    client.close()
    assert client.broker.clients.count == 0


def test_a_broker_that_leaves_keeps_batches_waiting(client: LaneClient) -> None:
    opened(client, (1, client.low, "p"))
    client.broker.accepting_batches.clear()
    client.send((1, 0, [b"a"], 1))
    eventually(lambda: client.broker.metric("smq_producer_waits_total") == 1)
    assert client.end(client.low) == 0
    client.broker.accepting_batches.set()
    eventually(lambda: client.end(client.low) == 1)


def test_too_many_waiting_batches_end_their_session(client: LaneClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_port, "MAX_WAITING_BYTES", 0)
    opened(client, (1, client.low, "p"), (2, client.high, "q"))
    client.broker.accepting_batches.clear()
    client.send((1, 0, [b"one may always wait"], 1))
    client.send((1, 1, [b"too much"], 1))
    assert isinstance(client.error_of(1), Overloaded)
    client.broker.accepting_batches.set()
    client.send((2, 0, [b"b"], 600))
    eventually(lambda: client.end(client.high) == 1)
    assert client.end(client.low) == 0


def waits(client: LaneClient) -> int:
    return int(client.broker.metric("smq_producer_waits_total"))


def test_a_bulk_lane_stops_reading_while_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_port, "MAX_WAITING_BYTES", 0)
    client = LaneClient(lane=pb.LANE_BULK)
    opened(client, (1, client.low, "p"), (2, client.high, "q"))
    client.broker.accepting_batches.clear()
    client.send((1, 0, [b"a"], 1))
    eventually(lambda: waits(client) == 1)
    client.send((2, 0, [b"b"], 600))
    heartbeats = client.heartbeats
    eventually(lambda: client.heartbeats > heartbeats, "the client learns that the broker lives")
    assert waits(client) == 1 and not client.stream.requests.empty(), "the second one was not read"
    client.broker.accepting_batches.set()
    eventually(lambda: client.end(client.low) == client.end(client.high) == 1)
    client.close()


def test_a_bulk_lane_that_has_stopped_reading_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_port, "MAX_WAITING_BYTES", 0)
    client = LaneClient(lane=pb.LANE_BULK)
    opened(client, (1, client.low, "p"))
    client.broker.accepting_batches.clear()
    client.send((1, 0, [b"a"], 1))
    eventually(lambda: waits(client) == 1)
    client.stream.break_connection()
    assert client.stream.ended.wait(HANG_GUARD)
    assert not client.hosted(client.low).streams


def test_a_segment_that_is_not_open_yet_stops_no_bulk_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_port, "MAX_WAITING_BYTES", 0)
    client = LaneClient(lane=pb.LANE_BULK)
    waiting = make_segment(client.topic, client.broker.replica, stop=512, number=2, predecessors=(client.low,))
    client.broker.opener.open(client.topic, waiting)
    opened(client, (1, waiting, "p"), (2, client.high, "q"))
    client.send((1, 0, [b"one may always wait"], 1))
    client.send((2, 0, [b"b"], 600))
    eventually(lambda: client.end(client.high) == 1)
    client.send((1, 1, [b"too much"], 1))
    assert isinstance(client.error_of(1), Overloaded)
    client.close()


def test_sessions_that_wait_for_capacity_take_turns() -> None:
    port = SessionPort(
        is_bulk=True,
        accepting_batches=threading.Event(),
        uploads=None,  # type: ignore[arg-type]
        broker_metrics=None,  # type: ignore[arg-type]
        threads=None,  # type: ignore[arg-type]
    )
    sessions: list[Any] = [object() for _ in range(3)]
    with port.wake:
        for session in sessions:
            assert port.add_waiting(session, 1, may_exceed=True)
        firsts = [port.take_waiting()[0] for _ in range(4)]
    assert firsts == [*sessions, sessions[0]]


def test_a_seal_ends_the_sessions_of_its_segment_only(client: LaneClient) -> None:
    opened(client, (1, client.low, "p"), (2, client.high, "p"))
    client.send((1, 0, [b"a"], 1))
    eventually(lambda: client.end(client.low) == 1)
    client.broker.seal(client.topic, client.low)
    sealed = client.wait_reply(1, "sealed").sealed
    assert sealed.end == 1 and sealed.producers["p"].last_sequence == 0
    client.send((1, 1, [b"too late"], 1), (2, 0, [b"fine"], 600))
    eventually(lambda: client.end(client.high) == 1)
    assert not client.hosted(client.low).streams


def test_a_segment_that_is_sealed_already_answers_with_its_outcome(client: LaneClient) -> None:
    client.broker.seal(client.topic, client.low)
    client.send(opens=[(1, client.low, "p")])
    assert client.wait_reply(1, "sealed").sealed.end == 0


def test_a_segment_that_is_not_here_is_refused_at_once(client: LaneClient) -> None:
    elsewhere = make_segment(client.topic, client.broker.replica, number=7)
    client.send(opens=[(1, elsewhere, "p"), (2, client.low, "p")])
    assert isinstance(client.error_of(1), NotHosted)
    client.wait_reply(2, "opened")


def test_a_newer_epoch_fences_the_older_session(client: LaneClient) -> None:
    opened(client, (1, client.low, "p"))
    client.send(opens=[(2, client.low, "p")], epoch=2)
    client.wait_reply(2, "opened")
    client.send((2, 0, [b"new"], 1))
    eventually(lambda: client.end(client.low) == 1)
    client.send((1, 0, [b"old"], 1))
    assert isinstance(client.error_of(1), ProducerFenced)


def test_a_closed_session_is_forgotten(client: LaneClient) -> None:
    opened(client, (1, client.low, "p"))
    client.send((1, 0, [b"a"], 1), closes=[1])
    eventually(lambda: not client.hosted(client.low).streams)
    assert client.end(client.low) == 1


@pytest.mark.parametrize(
    "message",
    [
        pb.ProducerFrame(sub_batches=[pb.ProducerFrame.SubBatch(session=1, sequence=0, rows=2)]),
        pb.ProducerFrame(sub_batches=[pb.ProducerFrame.SubBatch(session=1, sequence=0, rows=0)] * 2),
        pb.ProducerFrame(
            sub_batches=[pb.ProducerFrame.SubBatch(session=1, sequence=0, rows=1)],
            small_batch=small_batch((1, 0, [b"a"], 1)),
        ),
    ],
    ids=["too many rows", "no rows", "rows in both forms"],
)
def test_a_message_that_cannot_be_ends_the_stream(client: LaneClient, message: pb.ProducerFrame) -> None:
    opened(client, (1, client.low, "p"))
    client.stream.requests.put(Chunk(rows([b"a"]), message.SerializeToString()))
    assert client.ended.wait(300)
    assert isinstance(client.error, InvalidRequest)
    assert client.end(client.low) == 0 and not client.hosted(client.low).streams


def test_a_frame_that_is_too_large_ends_its_session_only(client: LaneClient) -> None:
    opened(client, (1, client.low, "p"), (2, client.high, "q"))
    client.send((1, 0, [b"x" * (1 << 20) + b"too much" * 100], 1))
    assert isinstance(client.error_of(1), MessageTooLarge)
    client.send((2, 0, [b"b"], 600))
    eventually(lambda: client.end(client.high) == 1)
    assert client.end(client.low) == 0


def test_a_session_that_is_open_already_ends_the_stream(client: LaneClient) -> None:
    opened(client, (1, client.low, "p"))
    client.send((1, 0, [b"a"], 1), opens=[(1, client.high, "q")])
    assert client.ended.wait(HANG_GUARD)
    assert isinstance(client.error, InvalidRequest) and "session 1 is open already" in str(client.error)
    assert client.end(client.low) == client.end(client.high) == 0
    assert not client.hosted(client.low).streams and not client.hosted(client.high).streams


def test_the_end_of_the_stream_ends_all_sessions(client: LaneClient) -> None:
    opened(client, (1, client.low, "p"), (2, client.high, "q"))
    client.broker.accepting_batches.clear()
    client.send((1, 0, [b"a"], 1))
    client.close()
    assert not client.hosted(client.low).streams and not client.hosted(client.high).streams
    assert client.broker.memory.primary_usage()[0] == 0


def sent_to_both(client: LaneClient) -> None:
    opened(client, (1, client.low, "a"), (2, client.high, "b"))
    client.send((1, 0, [b"x"], 0), (2, 0, [b"y"], 600))
    eventually(lambda: client.end(client.low) == client.end(client.high) == 1)


def test_acks_of_different_segments_share_a_reply(client: LaneClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_lane, "REPLY_HOLD_SECONDS", 3600.0)
    sent_to_both(client)
    port = client.lane._port
    client.flush()
    eventually(lambda: client.acks(1) or client.acks(2) or (port.changed and port.wake._waiters))  # type: ignore[attr-defined]
    assert not client.acks(1) and not client.acks(2), "it waits for the other segment"
    client.flush()
    eventually(lambda: client.acks(1) and client.acks(2))
    assert client.sessions_of_replies[-1] == [1, 2]


def test_acks_do_not_wait_long_for_those_of_another_segment(client: LaneClient) -> None:
    sent_to_both(client)
    client.flush()
    eventually(lambda: client.acks(1) or client.acks(2))
    client.flush()
    eventually(lambda: client.acks(1) and client.acks(2))


def test_only_acks_wait_for_acks(client: LaneClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_lane, "REPLY_HOLD_SECONDS", 3600.0)
    sent_to_both(client)
    opened(client, (3, client.low, "c"))
    client.send((3, 7, [b"z"], 0))
    assert isinstance(client.error_of(3), SequenceGap)


class RecordingLink:
    """A link to a follower that records the ends of both segments whenever it sends."""

    incarnation = "f"

    def __init__(self, client: LaneClient) -> None:
        self._client = client
        self.sent: list[tuple[int, int]] = []

    def start(self) -> None: ...

    def unresponsive(self) -> bool:
        return False

    def notify(self, *, grown: bool, progressed: bool, sends_now: bool) -> None: ...

    def can_send_now(self) -> bool:
        return True

    def send_now(self) -> None:
        self.sent.append((self._client.end(self._client.low), self._client.end(self._client.high)))


def test_batches_of_several_segments_are_sent_when_all_are_appended(client: LaneClient) -> None:
    """Segments with the same follower share a stream, so that one message has all of them."""
    links = [RecordingLink(client), RecordingLink(client)]
    for segment, link in zip((client.low, client.high), links, strict=True):
        client.hosted(segment).links = [link]
    client.send(opens=[(1, client.low, "a"), (2, client.high, "b")])
    client.send((1, 0, [b"1"], 0), (2, 0, [b"2"], 600))
    eventually(lambda: all(link.sent for link in links))
    assert [link.sent for link in links] == [[(1, 1)], [(1, 1)]]
