"""Streams to successors are opened while their predecessor still takes messages: nobody waits for a connection then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from smq.network import DIRECT
from smq.producer import Producer
from smq.view import Known, TopicView
from smq_core import layout as layouts
from smq_core.keyspace import KeyRange
from smq_core.model import Durability, Layout, Phase, Reason, Topic
from smq_storage.seaweed import SeaweedProcess
from support.broker_process import BrokerProcess, Brokers, make_topic
from support.waiting import eventually

pytestmark = pytest.mark.integration
HALVES = (KeyRange(0, 8), KeyRange(8, 16))


class ToldView:
    """What a producer asks of its view; the test is the leader."""

    network = DIRECT
    name = "default/t"
    deleted = None

    def __init__(self, topic: Topic, layout: Layout) -> None:
        self.known = Known(topic, layout)
        self._listeners: list[Callable[[Known], None]] = []

    def listen(self, listener: Callable[[Known], None]) -> None:
        self._listeners.append(listener)
        listener(self.known)

    def unlisten(self, listener: Callable[[Known], None]) -> None:
        self._listeners.remove(listener)

    def hint(self, incarnation: str, what: str) -> None:
        """Nobody hears it."""

    def tell(self, layout: Layout) -> None:
        self.known = replace(self.known, layout=layout)
        for listener in self._listeners:
            listener(self.known)


class Scene:
    """One broker with one open Stored segment, and a producer that has written to it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.topic = make_topic(partitions=16)
        whole = layouts.Successor(KeyRange(0, 16), (broker.replica,), Durability.STORED)
        layout = layouts.create(self.topic.name, self.topic.uid, 16, [whole], now=0, writer="w1")
        self.view = ToldView(self.topic, layout)
        (self.old,) = layout.segments
        broker.open(self.topic, self.old)
        self.producer = Producer(
            cast(TopicView, self.view),
            linger=0.0,
            batch_bytes=1 << 20,
            max_in_flight=1 << 20,
            timeout=20.0,
            producer_id=None,
            epoch=0,
        )
        self.sent: list[bytes] = []

    @property
    def layout(self) -> Layout:
        return self.view.known.layout

    def plan(self, name: str, *ranges: KeyRange) -> None:
        """Tells of a layout in which these successors replace that segment."""
        parts = tuple(layouts.Successor(r, (self.broker.replica,), Durability.STORED) for r in ranges)
        seal = layouts.SealPlan((name,), Reason.MANUAL, parts)
        self.view.tell(layouts.plan(self.layout, [seal], now=0, writer=f"w{self.layout.version + 1}"))

    def open_successors(self) -> None:
        for segment in self.layout.segments:
            if segment.phase is Phase.PENDING and not segment.successors:
                self.broker.open(self.topic, segment)

    def streams(self) -> int:
        words = self.broker.get("/metrics")[1].splitlines()
        return sum(int(float(w.split()[1])) for w in words if w.startswith('smq_streams{kind="producer"}'))

    def send(self, count: int = 32) -> set[str]:
        """So many messages of as many keys; the segments that took them."""
        numbers = range(len(self.sent), len(self.sent) + count)
        deliveries = [self.producer.send(b"%d" % n, key=b"%d" % (n % 32)) for n in numbers]
        self.sent += [b"%d" % n for n in numbers]
        return {delivery.result(20).segment for delivery in deliveries}


@pytest.fixture
def scene(seaweed: SeaweedProcess, prefix: str, tmp_path: Path) -> Iterator[Scene]:
    brokers = Brokers(tmp_path, seaweed.settings(prefix))
    (broker,) = brokers.start("b1")
    made = Scene(broker)
    yield made
    made.producer.close()
    brokers.stop()


def test_streams_to_successors_come_before_the_seal_and_before_they_are_open(scene: Scene) -> None:
    assert scene.send() == {scene.old.name} and scene.streams() == 1
    scene.plan(scene.old.name, *HALVES)
    scene.open_successors()
    eventually(lambda: scene.streams() == 3)
    assert scene.send() == {scene.old.name}, "what is not sealed takes messages"
    successors = [s for s in scene.layout.segments if s.predecessors]
    assert {scene.broker.report(s).state for s in successors} == {"waiting"}
    scene.broker.seal(scene.topic, scene.old, successors)
    assert scene.send() == {s.name for s in successors}
    eventually(lambda: scene.streams() == 2)


def test_a_successor_that_is_replaced_before_it_was_used_loses_its_stream(scene: Scene) -> None:
    scene.send()
    scene.plan(scene.old.name, *HALVES)
    scene.open_successors()
    eventually(lambda: scene.streams() == 3)
    left = next(s for s in scene.layout.segments if s.range == HALVES[0])
    scene.plan(left.name, HALVES[0])
    eventually(lambda: scene.streams() == 2, what="the stream to the replaced one has ended")
    assert scene.send() == {scene.old.name}


def test_who_was_silent_for_long_connects_when_it_writes_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.send()
    monkeypatch.setattr("smq.engine.AHEAD_WITHIN", 0.0)
    scene.plan(scene.old.name, *HALVES)
    scene.open_successors()
    scene.broker.seal(scene.topic, scene.old, [s for s in scene.layout.segments if s.predecessors])
    eventually(lambda: scene.streams() == 0, what="the stream to the sealed one has ended")
    assert len(scene.send()) == 2 and scene.streams() == 2


def test_a_stream_that_nothing_was_sent_on_opens_no_further_ones(scene: Scene) -> None:
    scene.send()
    scene.plan(scene.old.name, *HALVES)
    scene.open_successors()
    halves = [s for s in scene.layout.segments if s.predecessors]
    scene.broker.seal(scene.topic, scene.old, halves)
    eventually(lambda: scene.streams() == 2, what="the halves have theirs")
    left = halves[0]
    scene.plan(left.name, KeyRange(0, 4), KeyRange(4, 8))
    scene.open_successors()
    quarters = [s for s in scene.layout.segments if s.predecessors == (left.name,)]
    scene.broker.seal(scene.topic, left, quarters)
    eventually(lambda: scene.streams() == 1, what="the one to the sealed half has ended")
    assert scene.send() == {halves[1].name, *(s.name for s in quarters)}
