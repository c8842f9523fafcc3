"""What becomes of the sessions on a lane that a broker ends because of the client's grants or certificate."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from smq.producing.lanes import lane
from smq_core.errors import GrantMissing, PermissionDenied, SmqError, Unauthenticated
from smq_core.model.entities import Replica
from smq_proto.error_conversion import error_to_pb
from smq_proto.v1 import data_pb2 as pb
from support.in_memory.flight_streams import PutStream
from support.in_memory.played_lanes import BrokerLane, Client, PlayedBroker
from support.waiting import HANG_GUARD, eventually


class Credentials:
    """A dialer of a secure release. ``outcome`` is what a refusal comes to; None: the client has got what it needs."""

    def __init__(self) -> None:
        self.denials: list[SmqError] = []
        self.presented: list[str] = []
        self.outcome: SmqError | None = None
        self.denial: SmqError | None = None
        self.outdated: list[object] = []

    def present(self, client: object, topic: str) -> None:
        if self.denial is not None:
            raise self.denial
        self.presented.append(topic)

    def recover(self, error: SmqError, client: object, topic: str) -> SmqError | None:
        self.denials.append(error)
        return self.outcome

    def is_outdated(self, client: object) -> bool:
        return client in self.outdated


@pytest.fixture
def credentials() -> Credentials:
    return Credentials()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> PlayedBroker:
    played = PlayedBroker()

    def connect(replica: Replica, dialer: object) -> Any:
        def abort() -> None:
            for opened in played.client.streams:
                if not opened.ended.is_set():
                    opened.break_connection()

        return SimpleNamespace(client=played.client, abort=abort, close=lambda: None)

    monkeypatch.setattr(lane.FlightChannel, "open", staticmethod(connect))
    monkeypatch.setattr(lane, "UNRESPONSIVE_AFTER_SECONDS", 3600.0)
    return played


@pytest.fixture
def client(broker: PlayedBroker, credentials: Credentials) -> Iterator[Client]:
    with ExitStack() as ends:
        yield Client(ends, credentials)


def end_lane(served: BrokerLane, error: SmqError) -> None:
    served.stream.write(pb.ProducerFrameReply(error=error_to_pb(error)).SerializeToString())
    served.stream.break_connection()


def end_session(served: BrokerLane, error: SmqError) -> None:
    served.fail(1, error)


DENIALS = [
    (end, error)
    for end in (end_lane, end_session)
    for error in (GrantMissing("no grant", right="produce"), Unauthenticated("expired"))
]


@pytest.mark.parametrize(("end", "error"), DENIALS)
def test_what_has_no_outcome_goes_over_another_lane(
    client: Client,
    broker: PlayedBroker,
    credentials: Credentials,
    end: Callable[[BrokerLane, SmqError], None],
    error: SmqError,
) -> None:
    producer = client.producer()
    delivery = producer.send(b"a")
    served = broker.accept()
    served.next_batches()
    end(served, error)
    again = broker.accept()
    again.ack(*again.next_batches())
    assert delivery.result(HANG_GUARD).offset == 0
    assert [type(it) for it in credentials.denials] == [type(error)]
    assert credentials.presented == ["default/t"] * 2


@pytest.mark.parametrize(("end", "error"), DENIALS)
@pytest.mark.parametrize("outcome", [PermissionDenied("the leader says no"), Unauthenticated("who?")], ids=str)
def test_a_denial_ends_the_producer(
    client: Client,
    broker: PlayedBroker,
    credentials: Credentials,
    end: Callable[[BrokerLane, SmqError], None],
    error: SmqError,
    outcome: SmqError,
) -> None:
    credentials.outcome = outcome
    producer = client.producer()
    delivery = producer.send(b"a")
    served = broker.accept()
    served.next_batches()
    end(served, error)
    with pytest.raises(type(outcome), match=outcome.message):
        delivery.result(HANG_GUARD)
    with pytest.raises(type(outcome)):
        producer.send(b"b")


def test_a_client_that_a_quota_slows_down_is_warned_once(
    client: Client, broker: PlayedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    producer = client.producer()
    first, second = producer.send(b"a"), producer.send(b"b")
    served = broker.accept()
    sent = served.next_batches()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            served.stream.write(pb.ProducerFrameReply(throttled=2_500_000).SerializeToString())
        served.ack(*sent)
        first.result(HANG_GUARD)
    (line,) = [it.message for it in caplog.records]
    assert "default/t" in line and "waits 2.5 s" in line and "spec.quotas" in line
    if not second.done():
        served.ack(*served.next_batches())
    second.result(HANG_GUARD)


def test_only_the_thread_of_a_lane_waits_while_a_quota_is_used_up(
    client: Client, broker: PlayedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads write for all producers of the client."""
    writers: list[str] = []
    write = PutStream.write_metadata

    def record(stream: PutStream, metadata: bytes) -> None:
        if stream in broker.client.streams and pb.ProducerFrame.FromString(metadata).sub_batches:
            writers.append(threading.current_thread().name)
        write(stream, metadata)

    monkeypatch.setattr(PutStream, "write_metadata", record)
    producer = client.producer()
    first = producer.send(b"a")
    served = broker.accept()
    served.ack(*served.next_batches())
    first.result(HANG_GUARD)
    for throttled, direct in ((0, True), (2_500_000, False), (0, True)):
        delivery = producer.send(b"b")
        ((session, sequence),) = served.next_batches()
        acks = pb.ProducerReply.Acks(first_sequence=sequence, first_offsets=[sequence])
        reply = pb.ProducerFrameReply.Session(session=session, reply=pb.ProducerReply(acks=acks))
        served.stream.write(pb.ProducerFrameReply(sessions=[reply], throttled=throttled).SerializeToString())
        delivery.result(HANG_GUARD)
        writers.clear()
        delivery = producer.send(b"c")
        served.ack(*served.next_batches())
        delivery.result(HANG_GUARD)
        assert [not it.startswith("smq-sender") for it in writers] == [direct]


def test_a_denial_before_the_lane_is_open_ends_the_producer(
    client: Client, broker: PlayedBroker, credentials: Credentials
) -> None:
    credentials.denial = PermissionDenied("the leader says no")
    with pytest.raises(PermissionDenied, match="the leader says no"):
        client.producer().send(b"a").result(HANG_GUARD)
    assert not broker.client.streams


def test_a_lane_whose_certificate_was_replaced_is_closed_in_order(
    client: Client, broker: PlayedBroker, credentials: Credentials
) -> None:
    producer = client.producer()
    first = producer.send(b"a")
    served = broker.accept()
    served.next_batches()
    credentials.outdated.append(broker.client)
    eventually(served.stream.client_done.is_set, what="the lane ends")
    credentials.outdated.clear()
    again = broker.accept()
    second = producer.send(b"b")
    again.ack(*again.next_batches(2))
    assert first.result(HANG_GUARD) and second.result(HANG_GUARD)
    assert not credentials.denials
