"""Sessions for successors are opened before their predecessor is sealed, so that no message waits for a connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from smq.producer import Producer
from smq.producing.producer_runtime import ProducerRuntime
from smq.transport.dialer import DIRECT
from smq.transport.topic_view import TopicSnapshot, TopicView
from smq_core.model import layout_transitions as layouts
from smq_core.model.entities import Durability, Layout, Phase, Reason, Topic
from smq_core.model.keyspace import KeyRange
from smq_proto.v1 import data_pb2 as pb
from smq_storage.process.seaweedfs import SeaweedProcess
from support.processes.broker import BrokerProcess, BrokerProcesses, make_topic
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration
HALVES = (KeyRange(0, 8), KeyRange(8, 16))


class ScriptedTopicView:
    """The part of a topic view that a producer uses; the test plays the leader."""

    dialer = DIRECT
    name = "default/t"
    deleted = None

    def __init__(self, topic: Topic, layout: Layout) -> None:
        self.snapshot = TopicSnapshot(topic, layout)
        self._listeners: list[Callable[[TopicSnapshot], None]] = []

    def add_listener(self, listener: Callable[[TopicSnapshot], None]) -> None:
        self._listeners.append(listener)
        listener(self.snapshot)

    def remove_listener(self, listener: Callable[[TopicSnapshot], None]) -> None:
        self._listeners.remove(listener)

    def report_unreachable_broker(self, incarnation: str, what: str) -> None:
        """Does nothing."""

    def publish_layout(self, layout: Layout) -> None:
        self.snapshot = replace(self.snapshot, layout=layout)
        for listener in self._listeners:
            listener(self.snapshot)


class StoredSegmentWithProducer:
    """One broker with one open Stored segment, and a producer that has written to it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.topic = make_topic(partitions=16)
        whole = layouts.Successor(KeyRange(0, 16), (broker.replica,), Durability.STORED)
        layout = layouts.create(self.topic.name, self.topic.uid, 16, [whole], now=0, writer="w1")
        self.view = ScriptedTopicView(self.topic, layout)
        (self.old,) = layout.segments
        broker.open(self.topic, self.old)
        self.runtime = ProducerRuntime()
        self.producer = Producer(
            cast(TopicView, self.view),
            linger=0.0,
            batch_bytes=1 << 20,
            max_in_flight=1 << 20,
            timeout=HANG_GUARD,
            producer_id=None,
            epoch=None,
            runtime=self.runtime,
        )
        self.sent: list[bytes] = []

    @property
    def layout(self) -> Layout:
        return self.view.snapshot.layout

    def plan(self, name: str, *ranges: KeyRange) -> None:
        """Publishes a layout in which these successors replace that segment."""
        parts = tuple(layouts.Successor(r, (self.broker.replica,), Durability.STORED) for r in ranges)
        seal = layouts.SealPlan((name,), Reason.MANUAL, parts)
        self.view.publish_layout(layouts.plan(self.layout, [seal], now=0, writer=f"w{self.layout.version + 1}"))

    def open_successors(self) -> None:
        for segment in self.layout.segments:
            if segment.phase is Phase.PENDING and not segment.successors:
                self.broker.open(self.topic, segment)

    def sessions(self) -> int:
        metric_lines = self.broker.get("/metrics")[1].splitlines()
        return sum(int(float(w.split()[1])) for w in metric_lines if w.startswith("smq_producer_sessions "))

    def send(self, count: int = 32) -> set[str]:
        """Sends ``count`` messages of as many keys, and returns the segments that took them."""
        numbers = range(len(self.sent), len(self.sent) + count)
        deliveries = [self.producer.send(b"%d" % n, key=b"%d" % (n % 32)) for n in numbers]
        self.sent += [b"%d" % n for n in numbers]
        return {delivery.result().segment for delivery in deliveries}


@pytest.fixture
def stored_segment(
    seaweed: SeaweedProcess, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoredSegmentWithProducer]:
    monkeypatch.setattr("smq_core.producing.producer_machine.OPEN_AHEAD_SECONDS", 3600.0)
    brokers = BrokerProcesses(tmp_path, seaweed.settings(prefix))
    (broker,) = brokers.start("b1")
    made = StoredSegmentWithProducer(broker)
    yield made
    made.producer.close()
    made.runtime.close()
    brokers.stop()


def test_sessions_for_successors_come_before_the_seal_and_before_they_are_open(
    stored_segment: StoredSegmentWithProducer,
) -> None:
    assert stored_segment.send() == {stored_segment.old.name} and stored_segment.sessions() == 1
    stored_segment.plan(stored_segment.old.name, *HALVES)
    stored_segment.open_successors()
    eventually(lambda: stored_segment.sessions() == 3)
    assert stored_segment.send() == {stored_segment.old.name}, "what is not sealed takes messages"
    successors = [s for s in stored_segment.layout.segments if s.predecessors]
    assert {stored_segment.broker.report(s).state for s in successors} == {pb.SegmentReport.WAITING}
    stored_segment.broker.seal(stored_segment.topic, stored_segment.old, successors)
    assert stored_segment.send() == {s.name for s in successors}
    eventually(lambda: stored_segment.sessions() == 2)


def test_a_successor_that_is_replaced_before_it_was_used_loses_its_session(
    stored_segment: StoredSegmentWithProducer,
) -> None:
    stored_segment.send()
    stored_segment.plan(stored_segment.old.name, *HALVES)
    stored_segment.open_successors()
    eventually(lambda: stored_segment.sessions() == 3)
    left = next(s for s in stored_segment.layout.segments if s.range == HALVES[0])
    stored_segment.plan(left.name, HALVES[0])
    eventually(lambda: stored_segment.sessions() == 2, what="the session for the replaced one has ended")
    assert stored_segment.send() == {stored_segment.old.name}


def test_an_idle_producer_connects_when_it_writes_again(
    stored_segment: StoredSegmentWithProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_segment.send()
    monkeypatch.setattr("smq_core.producing.producer_machine.OPEN_AHEAD_SECONDS", 0.0)
    stored_segment.plan(stored_segment.old.name, *HALVES)
    stored_segment.open_successors()
    stored_segment.broker.seal(
        stored_segment.topic, stored_segment.old, [s for s in stored_segment.layout.segments if s.predecessors]
    )
    eventually(lambda: stored_segment.sessions() == 0, what="the session for the sealed one has ended")
    assert len(stored_segment.send()) == 2 and stored_segment.sessions() == 2


def test_a_session_that_nothing_was_sent_in_opens_no_further_ones(stored_segment: StoredSegmentWithProducer) -> None:
    stored_segment.send()
    stored_segment.plan(stored_segment.old.name, *HALVES)
    stored_segment.open_successors()
    halves = [s for s in stored_segment.layout.segments if s.predecessors]
    stored_segment.broker.seal(stored_segment.topic, stored_segment.old, halves)
    eventually(lambda: stored_segment.sessions() == 2, what="the halves have theirs")
    left = halves[0]
    stored_segment.plan(left.name, KeyRange(0, 4), KeyRange(4, 8))
    stored_segment.open_successors()
    quarters = [s for s in stored_segment.layout.segments if s.predecessors == (left.name,)]
    stored_segment.broker.seal(stored_segment.topic, left, quarters)
    eventually(lambda: stored_segment.sessions() == 1, what="the one for the sealed half has ended")
    assert stored_segment.send() == {halves[1].name, *(s.name for s in quarters)}
