"""A segment is opened as a whole, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from smq_broker.runtime.threads import spawn_daemon
from smq_core.errors import InvalidRequest, Overloaded, Unavailable
from smq_core.model.entities import Segment, Topic
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic
from support.waiting import eventually


class FailingSpawn:
    """Starts no thread from the ``first``-th on, until ``repaired``."""

    def __init__(self, first: int) -> None:
        self._left = first
        self.repaired = False

    def __call__(self, run: Callable[[], None], name: str) -> threading.Thread:
        self._left -= 1
        if self._left <= 0 and not self.repaired:
            raise RuntimeError("can't start new thread")
        return spawn_daemon(run, name)


class ThreeBrokers:
    def __init__(self, first_failing: int) -> None:
        network: dict[str, BrokerParts] = {}
        store = open_store("memory://")
        self.spawn = FailingSpawn(first_failing)
        self.primary = BrokerParts("b1", store, network, spawn=self.spawn)
        self.followers = [BrokerParts(name, store, network) for name in ("b2", "b3")]
        self.topic = make_topic()

    def segment(self, predecessor: Segment | None = None) -> Segment:
        replicas = [broker.replica for broker in (self.primary, *self.followers)]
        predecessors = [predecessor] if predecessor else []
        return make_segment(self.topic, *replicas, number=len(predecessors), predecessors=predecessors)


@pytest.mark.parametrize("first_failing", [1, 2, 3])
def test_a_segment_whose_threads_cannot_start_is_not_open(first_failing: int) -> None:
    """A primary with two followers and a predecessor needs three threads."""
    brokers = ThreeBrokers(first_failing)
    before = brokers.segment()
    segment = brokers.segment(before)
    for follower in brokers.followers:
        follower.opener.open(brokers.topic, segment)
    for _ in range(3):
        with pytest.raises(Unavailable, match="could not start a thread"):
            brokers.primary.opener.open(brokers.topic, segment)
        assert brokers.primary.registry.all() == []
    brokers.spawn.repaired = True

    hosted = brokers.primary.opener.open(brokers.topic, segment)
    assert brokers.primary.registry.all() == [hosted]
    brokers.primary.opener.open(brokers.topic, before)
    for follower in brokers.followers:
        follower.opener.open(brokers.topic, before)
    brokers.primary.seal(brokers.topic, before, [segment])
    producer = brokers.primary.produce(brokers.topic, segment)
    producer.send(0, rows([b"v"]))
    assert producer.wait_acked(0) == 0
    producer.close()
    brokers.primary.seal(brokers.topic, segment)


def test_a_producer_that_comes_before_the_segment_is_open_waits_for_it() -> None:
    brokers = ThreeBrokers(1)
    segment = brokers.segment()
    with pytest.raises(Unavailable):
        brokers.primary.opener.open(brokers.topic, segment)
    with pytest.raises(Unavailable, match="does not hold"):
        brokers.primary.hosted(brokers.topic, segment)


def test_the_credit_of_a_follower_that_failed_to_open_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = BrokerParts("b2", open_store("memory://"))
    primary = BrokerParts("b1", open_store("memory://"))
    topic = make_topic()
    segment = make_segment(topic, primary.replica, follower.replica)

    class Damaged(RuntimeError):
        pass

    def damaged(*_: object) -> None:
        raise Damaged

    # A follower starts no thread, so its opening is made to fail where a primary's would.
    monkeypatch.setattr(type(follower.opener), "_start_primary", damaged)
    hosted = follower.opener.open(topic, segment)
    assert follower.memory.usage()["replication"][0] == hosted.memory.credit > 0
    hosted.discard()
    assert follower.memory.usage()["replication"][0] == 0
    with pytest.raises(Damaged):
        primary.opener.open(topic, segment)
    assert primary.registry.all() == []


def open_topic() -> tuple[Topic, BrokerParts, BrokerParts]:
    network: dict[str, BrokerParts] = {}
    store = open_store("memory://")
    return make_topic(), BrokerParts("b1", store, network), BrokerParts("b2", store, network)


def test_a_segment_whose_replication_dies_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader seals a segment that is reported as fenced."""
    topic, primary, follower = open_topic()
    segment = make_segment(topic, primary.replica, follower.replica)

    def fail(_: str) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr(primary, "_connect", fail)
    hosted = primary.opener.open(topic, segment)
    eventually(lambda: hosted.machine.state is ReplicaState.FENCED)
    assert primary.threads.process_failure is None
    assert primary.metric("smq_thread_failures_total", thread="replication") == 5
    assert primary.seal(topic, segment).end == 0, "the leader can seal it"


def test_a_segment_that_cannot_wait_for_its_predecessors_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, primary, follower = open_topic()
    before = make_segment(topic, primary.replica, follower.replica)
    segment = make_segment(topic, primary.replica, follower.replica, number=1, predecessors=[before])

    def fail(*_: object) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr(primary.registry, "find_sealed", fail)
    hosted = primary.opener.open(topic, segment)
    eventually(lambda: hosted.machine.state is ReplicaState.FENCED)
    assert primary.threads.process_failure is None


def test_a_follower_gives_back_the_credit_of_a_sealed_segment() -> None:
    """Ten times as many segments as the budget holds credits for, one after the other."""
    topic, _, _ = open_topic()
    network: dict[str, BrokerParts] = {}
    store = open_store("memory://")
    primary = BrokerParts("b1", store, network)
    follower = BrokerParts("b2", store, network, memory=32 << 20)
    for number in range(150):
        segment = make_segment(topic, primary.replica, follower.replica, number=number)
        hosted = follower.opener.open(topic, segment)
        assert follower.memory.usage()["replication"][0] == hosted.memory.credit > 0
        follower.seal(topic, segment)
        assert follower.memory.usage()["replication"][0] == 0


def test_a_follower_without_memory_refuses_segments_until_one_is_sealed() -> None:
    topic = make_topic()
    primary = BrokerParts("b1", open_store("memory://"))
    follower = BrokerParts("b2", open_store("memory://"), memory=32 << 20)
    segments = [make_segment(topic, primary.replica, follower.replica, number=number) for number in range(50)]
    opened = []
    with pytest.raises(Overloaded):
        for segment in segments:
            follower.opener.open(topic, segment)
            opened.append(segment)
    assert len(opened) >= 10
    refused = segments[len(opened)]
    follower.seal(topic, opened[0])
    follower.opener.open(topic, refused)


def test_an_open_segment_is_not_opened_with_another_key() -> None:
    broker = BrokerParts("b1", open_store("memory://"), {})
    topic = make_topic()
    segment = make_segment(topic, broker.replica)
    hosted = broker.opener.open(topic, segment)
    quicker = replace(topic, spec=replace(topic.spec, flush_interval=1))
    assert broker.opener.open(quicker, segment) is hosted, "the settings of the flush may have changed since"
    other = replace(topic, spec=replace(topic.spec, key="id"))
    with pytest.raises(InvalidRequest, match="open with the key column None, not id"):
        broker.opener.open(other, segment)
