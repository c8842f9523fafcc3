"""What a producer does with a primary's answers, over streams that the test drives. Threads and timers are real."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import smq
from smq.producer import Producer
from smq.producing.runtime import unreachable_reports
from smq.transport.dialer import DIRECT
from smq_core.errors import InvalidRequest
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Durability, Layout, Phase, Reason, Replica, Segment, Topic, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_core.producing.send_queue import MAX_IN_FLIGHT
from smq_proto.error_conversion import error_to_pb
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import outcome_to_pb
from support.in_memory.producer_sessions import DrivenSession, producer_of, session
from support.waiting import HANG_GUARD, eventually

SEGMENT = Segment(
    name="t-0-8-0",
    number=0,
    range=KeyRange(0, 8),
    phase=Phase.OPEN,
    durability=Durability.REPLICATED,
    replicas=(Replica("b", "i", "a:1"),),
)


@pytest.fixture
def producer(request: pytest.FixtureRequest, driven_sessions: None) -> Iterator[Producer]:
    """Its timeout is the parameter, if the test has one."""
    topic = Topic("default/t", "uid", TopicSpec(partitions=8))
    view = SimpleNamespace(
        name="default/t",
        snapshot=SimpleNamespace(
            topic=topic,
            layout=Layout(topic="default/t", uid="uid", partitions=8, version=1, next_number=1, segments=(SEGMENT,)),
        ),
        dialer=DIRECT,
        deleted=None,
        add_listener=lambda listener: None,
        remove_listener=lambda listener: None,
        report_unreachable_broker=lambda incarnation, what: None,
    )
    with producer_of(view, getattr(request, "param", HANG_GUARD)) as made:
        yield made


def test_a_batch_of_a_forgotten_producer_fails_once_and_the_next_one_is_sent(producer: Producer) -> None:
    first = producer.send(b"first")
    session(0).opened()
    eventually(lambda: session(0).written == [0])
    session(0).break_off()

    session(1).opened(end=10, forgotten_upto=5)

    with pytest.raises(smq.DeliveryUnknown, match="may or may not have been stored"):
        first.result(HANG_GUARD)
    assert session(1).written == []
    assert producer._engine.in_flight == 0, "its budget is given back"
    second = producer.send(b"second")
    eventually(lambda: session(1).written == [0])
    session(1).ack(0, 10)
    assert second.result(HANG_GUARD).offset == 10


def test_what_waits_because_so_much_is_in_flight_is_sent_after_an_ack(producer: Producer) -> None:
    for _ in range(MAX_IN_FLIGHT + 2):
        producer.write(pa.table({"value": [b"v"]}))
    session(0).opened()
    eventually(lambda: session(0).written == list(range(MAX_IN_FLIGHT)))
    for acked in (0, 1):
        session(0).ack(acked, acked)
        eventually(lambda acked=acked: session(0).written == list(range(MAX_IN_FLIGHT + 1 + acked)))


def test_a_batch_that_was_certainly_not_stored_is_sent_again(producer: Producer) -> None:
    """Others were forgotten, but all before this producer opened its stream."""
    delivery = producer.send(b"first")
    session(0).opened(end=5, forgotten_upto=5)
    eventually(lambda: session(0).written == [0])
    session(0).break_off()

    session(1).opened(end=7, forgotten_upto=5)

    eventually(lambda: session(1).written == [0])
    session(1).ack(0, 7)
    assert delivery.result(HANG_GUARD).offset == 7


def test_an_outcome_without_the_forgotten_producer_fails_its_batches(producer: Producer) -> None:
    delivery = producer.send(b"first")
    session(0).opened()
    eventually(lambda: session(0).written == [0])
    successor = replace(
        SEGMENT, name="t-0-8-1", number=1, phase=Phase.PENDING, predecessors=(SEGMENT.name,), opened_because=Reason.ROLL
    )
    outcome = SealOutcome(segment=SEGMENT.name, end=9, forgotten_upto=3)

    session(0).reply(sealed=outcome_to_pb(outcome, successors=[successor]))

    with pytest.raises(smq.DeliveryUnknown):
        delivery.result(HANG_GUARD)
    producer.send(b"second")
    assert session(1).segment.name == "t-0-8-1"
    session(1).opened()
    eventually(lambda: session(1).written == [0])


def test_a_stream_that_is_opened_again_has_the_same_identity(producer: Producer) -> None:
    producer.send(b"first")
    session(0).opened()
    session(0).break_off()
    assert session(1).identity == session(0).identity
    assert len(session(0).identity[2]) == 16


@pytest.mark.parametrize("producer", [0.05], indirect=True)
def test_a_delivery_callback_may_close_the_producer(producer: Producer) -> None:
    """Here in the thread of the timers, which fail the batch."""
    closed: list[BaseException | None] = []
    done = threading.Event()

    def close(_: object) -> None:
        try:
            producer.close()
            closed.append(None)
        except BaseException as error:
            closed.append(error)
        done.set()

    delivery = producer.send(b"nobody answers")
    delivery.add_done_callback(close)
    assert done.wait(HANG_GUARD)
    assert not isinstance(closed[0], RuntimeError), closed
    assert producer._engine.failure is not None, "what was in flight has failed, and nothing can be sent any more"


def test_a_reply_of_a_former_stream_changes_nothing(producer: Producer) -> None:
    """It comes late, and its sequences belong to the stream on which they were sent."""
    delivery = producer.send(b"first")
    session(0).opened()
    eventually(lambda: session(0).written == [0])
    session(0).break_off()
    session(1).opened()
    eventually(lambda: session(1).written == [0])
    rejected = pb.ProducerReply.Rejected(sequence=0, error=error_to_pb(InvalidRequest("late")))
    session(0).reply(rejected=rejected)
    session(0).ack(0, 77)
    assert not delivery.done()
    session(1).ack(0, 5)
    assert delivery.result(HANG_GUARD).offset == 5


def test_the_end_of_a_former_stream_leaves_the_present_one(producer: Producer) -> None:
    producer.send(b"first")
    session(0).opened()
    session(0).break_off()
    session(1).opened()
    eventually(lambda: session(1).written == [0])
    producer._engine.on_end(1, None, is_planned=False)
    producer.send(b"second")
    eventually(lambda: session(1).written == [0, 1], "the present stream goes on")
    assert len(DrivenSession.opened_sessions) == 2


def test_a_broker_is_reported_as_unreachable_once_in_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreachable_reports, "REPORT_INTERVAL_SECONDS", 3600.0)
    reported: list[str] = []
    view: Any = SimpleNamespace(report_unreachable_broker=lambda incarnation, what: reported.append(incarnation))
    reports = unreachable_reports.UnreachableReports()
    for incarnation in ("i", "i", "i", "j"):
        reports.report(view, incarnation, "it does not answer")
    eventually(lambda: "j" in reported)
    assert reported == ["i", "j"]
    reports.close()
