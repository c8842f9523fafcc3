"""The lanes that the producers of a client share. The test plays the broker; threads, timers and queues are real."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from smq.producing.batching.partitioning import SubBatch
from smq.producing.delivery_state import DeliveryState
from smq.producing.lanes import lane, lanes
from smq_core.errors import NotHosted
from smq_core.model.entities import Replica
from smq_core.producing import segment_sender
from smq_core.producing.send_queue import SentSubBatch
from smq_proto.v1 import data_pb2 as pb
from support.in_memory.brokers import batch_of
from support.in_memory.flight_streams import Chunk
from support.in_memory.played_lanes import BrokerLane, Client, PlayedBroker
from support.waiting import HANG_GUARD, eventually


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> PlayedBroker:
    played = PlayedBroker()

    def connect(replica: Replica, dialer: object) -> Any:
        assert replica.address == "a:1"

        def abort() -> None:
            for opened in played.client.streams:
                if not opened.ended.is_set():
                    opened.break_connection()

        return SimpleNamespace(client=played.client, abort=abort, close=lambda: None)

    monkeypatch.setattr(lane.FlightChannel, "open", staticmethod(connect))
    # What is sent while sessions open may be one message or several. Only the test that names it waits for the acks of
    # the message before.
    monkeypatch.setattr(lane, "MAX_HOLD_SECONDS", 0.001)
    monkeypatch.setattr(lane, "UNRESPONSIVE_AFTER_SECONDS", 3600.0)
    return played


@pytest.fixture
def client(broker: PlayedBroker) -> Iterator[Client]:
    with ExitStack() as ends:
        yield Client(ends)


def test_producers_share_a_stream_and_each_gets_its_own_acks(client: Client, broker: PlayedBroker) -> None:
    one, two = client.producer(), client.producer()
    deliveries = [one.send(b"a"), two.send(b"b")]
    served = broker.accept()
    batches = served.next_batches(2)
    assert {(session, sequence) for session, sequence in batches} == {(1, 0), (2, 0)}
    assert {it.producer.producer for it in served.opens.values()} == {one.producer_id, two.producer_id}
    served.ack((2, 0))
    assert deliveries[1].result(HANG_GUARD).offset == 0 and not deliveries[0].done()
    served.ack((1, 0))
    deliveries[0].result(HANG_GUARD)
    assert broker.small.empty() and broker.bulk.empty()


def test_few_messages_go_out_as_a_small_batch(client: Client, broker: PlayedBroker) -> None:
    producer = client.producer()
    producer.send(b"opens the session")
    served = broker.accept()
    served.ack(*served.next_batches())
    before = served.small_batches
    producer.send(b"a", key=b"k", timestamp=7)
    message, rows = served.message()
    served.ack((1, 1))
    assert rows == 1 and served.small_batches - before == 1
    sent = message.small_batch
    assert (list(sent.keys), list(sent.values), list(sent.timestamps)) == ([b"k"], [b"a"], [7])
    producer.send(b"b", headers=[("h", b"v")])
    assert served.next_batches() == [(1, 2)], "this one needs an Arrow batch"
    assert served.small_batches - before == 1


def test_what_comes_before_the_acks_of_a_message_goes_out_as_one(
    client: Client, broker: PlayedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "MAX_HOLD_SECONDS", 3600.0)
    producers = [client.producer() for _ in range(5)]
    producers[0].send(b"first")
    served = broker.accept()
    assert served.next_batches() == [(1, 0)]
    for producer in producers:
        producer.send(b"later")
    eventually(lambda: all(not it._batcher._ready and not it._batcher._current for it in producers))
    assert served.stream.requests.empty(), "nothing is sent before the acks"
    served.ack((1, 0))
    message, _ = served.message()
    assert len(message.opens) == 4 and [(it.session, it.sequence) for it in message.sub_batches] == [(1, 1)]
    opened = pb.ProducerReply(opened=pb.ProducerReply.Opened(max_batch_bytes=1 << 20))
    served.ack((1, 1))
    served.reply(*((number, opened) for number in (2, 3, 4, 5)))
    assert {session for session, _ in served.next_batches(4)} == {2, 3, 4, 5}


def test_messages_and_tables_of_several_producers_share_a_message(
    client: Client, broker: PlayedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "MAX_HOLD_SECONDS", 3600.0)
    producers = [client.producer() for _ in range(4)]
    served: BrokerLane | None = None
    for producer in producers:
        producer.send(b"opens its session")
        served = served or broker.accept()
        served.ack(*served.next_batches())
    assert served is not None
    producers[0].send(b"first")
    assert served.next_batches() == [(1, 1)]
    producers[1].send(b"b", key=b"k", headers=[("h", b"v")])
    producers[2].write(pa.table({"value": [b"c", b"d"], "timestamp": [1, 2]}))
    producers[3].send(b"e", timestamp=3)
    eventually(lambda: all(it.is_ready for it in client.sessions()[1:]))
    served.ack((1, 1))
    chunk = served.stream.requests.get(timeout=HANG_GUARD)
    assert isinstance(chunk, Chunk) and chunk.data is not None
    rows = [it.session for it in pb.ProducerFrame.FromString(chunk.app_metadata).sub_batches for _ in range(it.rows)]
    found = {(session, row["key"], row["value"]) for session, row in zip(rows, chunk.data.to_pylist(), strict=True)}
    assert found == {(2, b"k", b"b"), (3, None, b"c"), (3, None, b"d"), (4, None, b"e")}
    assert [row["headers"] for row in chunk.data.to_pylist() if row["value"] == b"b"] == [[{"key": "h", "value": b"v"}]]
    given = [row["timestamp"].microsecond for row in chunk.data.to_pylist() if row["value"] != b"b"]
    assert given == [1, 2, 3]


def test_a_message_does_not_wait_for_acks_for_ever(client: Client, broker: PlayedBroker) -> None:
    producer = client.producer()
    producer.send(b"first")
    served = broker.accept()
    served.next_batches()
    producer.send(b"second")
    assert served.next_batches() == [(1, 1)]


def test_what_does_not_fit_into_a_message_does_not_wait_for_ever(
    client: Client, broker: PlayedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_connect, connect = threading.Event(), lane.FlightChannel.open

    def connect_later(replica: Replica, dialer: Any) -> Any:
        may_connect.wait(HANG_GUARD)
        return connect(replica, dialer)

    monkeypatch.setattr(lane.FlightChannel, "open", staticmethod(connect_later))
    producers = [client.producer() for _ in range(10)]
    for producer in producers:
        producer.send(b"x" * 60_000)
    eventually(lambda: all(not it._batcher._ready and not it._batcher._current for it in producers))
    may_connect.set()
    served = broker.accept()
    assert len(served.next_batches(10)) == 10, "although nothing is acked"


def test_nothing_waits_for_the_acks_of_a_session_that_has_ended(
    client: Client, broker: PlayedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with a frame that has its last batches, because the next one is large and goes on the bulk lane."""
    monkeypatch.setattr(lane, "MAX_HOLD_SECONDS", 3600.0)
    one, two = client.producer(), client.producer()
    one.send(b"first")
    served = broker.accept()
    assert served.next_batches() == [(1, 0)]
    served.ack((1, 0))
    two.send(b"first")
    assert served.next_batches() == [(2, 0)]
    one.send(b"second")
    eventually(lambda: not one._batcher._ready and not one._batcher._current)
    one.send(b"x" * 100_000)
    two.send(b"second")
    eventually(lambda: all(not it._batcher._ready and not it._batcher._current for it in (one, two)))
    served.ack((2, 0))
    message, _ = served.message()
    assert list(message.closes) == [1] and [it.session for it in message.sub_batches] == [1, 2]
    served.ack((1, 1), (2, 1))
    two.send(b"third")
    assert served.next_batches() == [(2, 2)]


def test_an_error_ends_one_session_which_opens_again(client: Client, broker: PlayedBroker) -> None:
    one, two = client.producer(), client.producer()
    first = one.send(b"a")
    served = broker.accept()
    served.next_batches()
    served.fail(1, NotHosted("not yet"))
    message, _ = served.message()
    assert [it.session for it in message.opens] == [2] and not message.closes
    served.reply((2, pb.ProducerReply(opened=pb.ProducerReply.Opened(max_batch_bytes=1 << 20))))
    assert served.next_batches() == [(2, 0)], "the batch is sent again"
    served.ack((2, 0))
    first.result(HANG_GUARD)
    two.send(b"c")
    assert served.next_batches() == [(3, 0)]


def test_when_the_stream_breaks_everything_is_sent_again_on_another_one(client: Client, broker: PlayedBroker) -> None:
    producers = [client.producer() for _ in range(3)]
    deliveries = [producer.send(b"a") for producer in producers]
    first = broker.accept()
    first.next_batches(3)
    first.stream.break_connection()
    second = broker.accept()
    again = second.next_batches(3)
    assert [sequence for _, sequence in again] == [0, 0, 0]
    second.ack(*again)
    for delivery in deliveries:
        delivery.result(HANG_GUARD)


def test_a_large_batch_goes_on_the_bulk_lane_and_keeps_its_place(client: Client, broker: PlayedBroker) -> None:
    producer = client.producer()
    producer.send(b"small")
    small = broker.accept()
    small.next_batches()
    large = producer.send(b"x" * 100_000)
    bulk = broker.accept(bulk=True)
    assert bulk.next_batches(2) == [(1, 0), (1, 1)], "what has no ack is sent again, in its place"
    bulk.ack((1, 0), (1, 1))
    assert large.result(HANG_GUARD).offset == 1
    producer.send(b"small again")
    assert bulk.next_batches() == [(1, 2)]
    message, _ = small.message()
    assert list(message.closes) == [1]


def test_large_batches_of_several_producers_take_turns_and_wait_for_no_acks(
    client: Client, broker: PlayedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "MAX_HOLD_SECONDS", 3600.0)
    one, two = client.producer(), client.producer()
    for producer in (one, two, one, two, one):
        producer.write(pa.table({"value": [b"x" * 100_000]}))
    bulk = broker.accept(bulk=True)
    frames = []
    while sum(len(frame.sub_batches) for frame in frames) < 5:
        frame, _ = bulk.message()
        for it in frame.opens:
            bulk.reply((it.session, pb.ProducerReply(opened=pb.ProducerReply.Opened(max_batch_bytes=1 << 20))))
        frames.append(frame)
    assert all(len(frame.sub_batches) <= 1 for frame in frames)
    sent = [(it.session, it.sequence) for frame in frames for it in frame.sub_batches]
    assert sorted(sent) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)] and broker.small.empty()


def test_small_batches_leave_the_bulk_lane_when_nothing_large_has_come_for_a_while(
    client: Client, broker: PlayedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_sender, "SMALL_AFTER_SECONDS", 0.0)
    producer = client.producer()
    large = producer.send(b"x" * 100_000)
    bulk = broker.accept(bulk=True)
    bulk.ack(*bulk.next_batches())
    large.result(HANG_GUARD)
    producer.send(b"small")
    small = broker.accept()
    message, _ = small.message()
    assert [it.session for it in message.opens] == [1]
    opened = pb.ProducerReply.Opened(max_batch_bytes=1 << 20, last_sequence=0)
    small.reply((1, pb.ProducerReply(opened=opened)))
    assert small.next_batches() == [(1, 1)]
    message, _ = bulk.message()
    assert list(message.closes) == [1]


def test_a_bulk_lane_whose_sessions_are_idle_is_closed_and_opened_again(
    client: Client, broker: PlayedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = client.producer()
    large = producer.send(b"x" * 100_000)
    first = broker.accept(bulk=True)
    batches = first.next_batches()
    monkeypatch.setattr(lanes, "IDLE_SECONDS", 0.0)
    first.ack(*batches)
    large.result(HANG_GUARD)
    eventually(first.stream.client_done.is_set)
    monkeypatch.setattr(lanes, "IDLE_SECONDS", 3600.0)
    eventually(lambda: not client.runtime.lanes._lanes)  # type: ignore[attr-defined]
    again = producer.send(b"y" * 100_000)
    second = broker.accept(bulk=True)
    message, _ = second.message()
    opened = pb.ProducerReply.Opened(max_batch_bytes=1 << 20, last_sequence=0)
    second.reply(*((it.session, pb.ProducerReply(opened=opened)) for it in message.opens))
    assert second.next_batches() == [(1, 1)]
    second.ack((1, 1))
    assert again.result(HANG_GUARD).offset == 1


def test_a_sub_batch_names_what_was_uploaded() -> None:
    frame = pb.ProducerFrame()
    state = DeliveryState(1, threading.Lock())
    value: Any = SimpleNamespace(value=SimpleNamespace(name="p-0-a.value"))
    large = SubBatch(batch=batch_of(1, 0), delivery_state=state, rows=None, cost=1, created_at=0.0, large_value=value)
    assert lane._add_sub_batch(frame, 1, SentSubBatch(3, large, rejections=2)) is large.batch
    assert list(frame.sub_batches[0].large_values) == ["p-0-a.value"]
    assert (frame.sub_batches[0].rows, frame.sub_batches[0].rejections) == (1, 2)


def test_a_producer_that_closes_ends_its_session(client: Client, broker: PlayedBroker) -> None:
    producer = client.producer()
    producer.send(b"a")
    served = broker.accept()
    batches = served.next_batches()
    served.ack(*batches)
    producer.close()
    message, _ = served.message()
    assert list(message.closes) == [1]


def test_a_stream_that_nobody_uses_is_closed(
    client: Client, broker: PlayedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "IDLE_SECONDS", 0.0)
    producer = client.producer()
    producer.send(b"a")
    served = broker.accept()
    served.ack(*served.next_batches())
    producer.close()
    eventually(served.stream.client_done.is_set)


def test_threads_do_not_grow_with_the_producers(client: Client, broker: PlayedBroker) -> None:
    before = threading.active_count()
    producers = [client.producer(linger=0.001) for _ in range(100)]
    deliveries = [producer.send(b"a") for producer in producers]
    served = broker.accept()
    acked = 0
    while acked < 100:
        batches = served.next_batches()
        served.ack(*batches)
        acked += len(batches)
    for delivery in deliveries:
        delivery.result(HANG_GUARD)
    # Timers, a sender and a reader; the played broker has one.
    assert threading.active_count() - before <= 5
