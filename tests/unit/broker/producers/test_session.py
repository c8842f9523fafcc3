"""A producer's session at the primary, without a network: what is refused, given back, and said."""

from __future__ import annotations

import pytest

from smq_broker.producers import producer_session as session_module
from smq_core.errors import Unavailable
from smq_core.model.entities import Durability
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts, ProducerClient
from support.in_memory.flight_streams import Chunk
from support.processes.broker import make_segment, make_topic
from support.waiting import eventually


class StoredTopic:
    def __init__(self) -> None:
        self.broker = BrokerParts("b1", open_store("memory://"))
        self.topic = make_topic()
        self.segment = make_segment(self.topic, self.broker.replica)
        assert self.segment.durability is Durability.STORED
        self.hosted = self.broker.opener.open(self.topic, self.segment)

    def produce(self) -> ProducerClient:
        return self.broker.produce(self.topic, self.segment)

    def seal(self) -> None:
        self.broker.seal(self.topic, self.segment)


@pytest.fixture
def stored() -> StoredTopic:
    return StoredTopic()


def error_of(producer: ProducerClient) -> BaseException:
    return error_from_pb(producer.wait_reply("error").error)


def test_a_broker_that_leaves_accepts_no_batch(stored: StoredTopic) -> None:
    producer = stored.produce()
    producer.send(0, rows([b"a"]))
    stored.broker.flusher.flush_next()
    producer.wait_acked(0)
    stored.broker.accepting_batches.clear()
    producer.send(1, rows([b"b"]))
    eventually(lambda: stored.broker.metric("smq_producer_waits_total") == 1, "the batch waits")
    assert stored.hosted.machine.end == 1
    assert stored.broker.flusher.flush_all() == [], "so that the last flush has an end"
    stored.seal()
    assert producer.wait_reply("sealed").sealed.end == 1
    assert set(producer.acked) == {0}
    producer.close()


def test_memory_is_given_back_for_a_batch_that_is_refused(stored: StoredTopic) -> None:
    producer = stored.produce()
    producer.send(5, rows([b"a"]))
    assert type(error_of(producer)).__name__ == "SequenceGap"
    eventually(lambda: not stored.hosted.streams)
    assert stored.broker.memory.primary_usage()[0] == 0


def test_a_malformed_frame_is_the_clients_fault(stored: StoredTopic) -> None:
    producer = stored.produce()
    producer.wait_reply("opened")
    producer.stream.requests.put(OSError("Invalid flatbuffers message.\nTraceback"))
    eventually(lambda: producer.ended)
    error = producer.error
    assert type(error).__name__ == "InvalidRequest" and "malformed: Invalid flatbuffers message." in str(error)
    assert stored.hosted.machine.end == 0 and not stored.hosted.streams


def test_a_lane_whose_acks_were_lost_ends(stored: StoredTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = stored.produce()
    producer.wait_reply("opened")

    def fail(_: object) -> list[pb.ProducerReply]:
        raise ValueError("unexpected")

    with monkeypatch.context() as damaged:
        damaged.setattr(session_module, "group_acks", fail)
        producer.send(0, rows([b"a"]))
        stored.broker.flusher.flush_next()
        eventually(lambda: stored.broker.metric("smq_thread_failures_total", thread="producer-replies") == 1)

    def ended() -> bool:
        if not producer.stream.ended.is_set():
            producer.stream.requests.put(Chunk(None, b""))
        return producer.ended and not stored.hosted.streams

    eventually(ended)
    assert isinstance(producer.error, Unavailable), "the producer connects again"
    again = stored.produce()
    again.send(0, rows([b"a"]))
    assert again.wait_acked(0) == 0, "the batch was not lost"
    assert stored.hosted.machine.end == 1, "nor doubled"
    again.close()


def test_a_segment_that_cannot_deliver_acks_ends_the_session(
    stored: StoredTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = stored.produce()
    producer.wait_reply("opened")
    (session,) = stored.hosted.streams

    def fail(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(session, "acked", fail)
    producer.send(0, rows([b"a"]))
    stored.broker.flusher.flush_next()
    assert isinstance(error_of(producer), Unavailable)
    assert stored.hosted.machine.state is ReplicaState.OPEN
    producer.close()
    eventually(lambda: producer.ended)
    again = stored.produce()
    again.send(0, rows([b"a"]))
    again.wait_acked(0)
    again.close()
