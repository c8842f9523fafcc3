"""The outcome of a segment says that another process writes as this producer: the producer ends, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import smq
from smq.delivery import Delivery, Receipt
from smq.producer import Producer
from smq.producing.seal_outcomes import SealOutcomeClient
from smq_core.model.chunk_info import ProducerState, SealOutcome
from smq_core.producing import producer_machine
from smq_proto.wire import outcome_to_pb
from support.in_memory.producer_sessions import DrivenSession, producer_of, session
from support.in_memory.topic import TopicInMemory
from support.waiting import HANG_GUARD, eventually


@pytest.fixture
def topic(driven_sessions: None) -> TopicInMemory:
    return TopicInMemory()


@pytest.fixture
def producer(topic: TopicInMemory) -> Iterator[Producer]:
    with producer_of(topic) as made:
        yield made


def send(producer: Producer) -> Delivery[Receipt]:
    """A message that is in flight."""
    delivery = producer.send(b"v")
    session(0).opened()
    eventually(lambda: session(0).written == [0])
    return delivery


def fenced(driven: DrivenSession, *, newer: bool) -> SealOutcome:
    """The segment ends with a newer epoch of its producer, or with another process in the same epoch."""
    name, epoch, _ = driven.identity
    state = (
        ProducerState(epoch=epoch + 1, last_sequence=0, recent=(0,), instance="x")
        if newer
        else ProducerState(epoch=epoch, last_sequence=0, recent=(0,), instance="x")
    )
    return SealOutcome(segment=driven.segment.name, end=1, producers={name: state})


def assert_has_ended(producer: Producer, delivery: Delivery[Receipt]) -> None:
    with pytest.raises(smq.ProducerFenced):
        delivery.result(HANG_GUARD)
    with pytest.raises(smq.ProducerFenced):
        producer.send(b"more").result(HANG_GUARD)
    assert not any(it.written for it in DrivenSession.opened_sessions[1:]), "nothing goes to a successor"


@pytest.mark.parametrize("newer", [True, False], ids=["a newer epoch", "another process"])
def test_an_outcome_on_the_stream_ends_a_fenced_producer(producer: Producer, topic: TopicInMemory, newer: bool) -> None:
    delivery = send(producer)
    successor = topic.segment(1, predecessors=(topic.first.name,))
    session(0).reply(sealed=outcome_to_pb(fenced(session(0), newer=newer), successors=[successor]))
    assert_has_ended(producer, delivery)


def test_an_outcome_without_successors_ends_a_fenced_producer(producer: Producer, topic: TopicInMemory) -> None:
    """Its primary does not know them yet. The layout that names them comes in a thread that serves others, too."""
    delivery = send(producer)
    session(0).reply(sealed=outcome_to_pb(fenced(session(0), newer=True), successors=[]))
    topic.seal(topic.first, 1, topic.segment(1, predecessors=(topic.first.name,)))
    assert_has_ended(producer, delivery)


def test_an_outcome_of_another_broker_ends_a_fenced_producer(
    producer: Producer, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_machine, "OUTCOME_POLL_DELAY_SECONDS", 0.0)
    delivery = send(producer)
    successor = topic.segment(1, predecessors=(topic.first.name,))
    found = fenced(session(0), newer=True), (successor,)

    def fetch(_: SealOutcomeClient, *__: Any) -> Any:
        return found

    monkeypatch.setattr(SealOutcomeClient, "fetch", fetch)
    topic.seal(topic.first, 1, successor)
    assert_has_ended(producer, delivery)
