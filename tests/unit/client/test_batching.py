"""When messages are sent one by one, and when they share a batch because earlier ones have no outcome yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

import smq.producer
from smq.producer import MAX_UNACKED_BATCHES, SMALL_BATCH_BYTES, Producer
from smq.producing.partitioning import SubBatch
from smq.transport.topic_view import TopicSnapshot
from smq_core.errors import DeliveryTimeout
from smq_core.model.entities import Layout, Topic, TopicSpec
from support.waiting import eventually


class FakeEngine:
    """Accepts every batch and acks it when the test calls ``answer``."""

    max_batch_bytes = 16 << 20
    full = False

    def __init__(
        self,
        view: object,
        producer_id: str,
        epoch: int,
        instance: str,
        timeout: float,
        max_in_flight: int,
        on_resolved: Callable[[], None],
    ) -> None:
        self._on_resolved = on_resolved
        self.lock = threading.Lock()
        self.submitted: list[SubBatch] = []

    def reserve_now(self, nbytes: int) -> None: ...

    def large_value_done(self, large_value: object, error: object) -> None: ...

    def submit(self, sub_batch: SubBatch, _: object) -> None:
        self.submitted.append(sub_batch)

    def answer(self, sub_batch: SubBatch) -> None:
        with self.lock:
            calls = sub_batch.delivery_state.delivered(None, "segment", 0)
        for call in calls:
            call()
        self._on_resolved()

    def close(self) -> None:
        for sub_batch in self.submitted:
            if sub_batch.delivery_state.left:
                self.answer(sub_batch)


@pytest.fixture
def open_producer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], Producer]]:
    """Makes one with that linger, in seconds."""
    monkeypatch.setattr(smq.producer, "ProducerEngine", FakeEngine)
    snapshot = TopicSnapshot(Topic("default/t", "uid", TopicSpec(partitions=8)), Layout("default/t", "uid", 8))
    view = SimpleNamespace(
        name="t", snapshot=snapshot, add_listener=lambda listener: None, remove_listener=lambda listener: None
    )
    options = {"batch_bytes": 1 << 20, "max_in_flight": 1 << 20, "timeout": 5.0, "producer_id": None, "epoch": None}
    opened: list[Producer] = []

    def open_one(linger: float) -> Producer:
        opened.append(Producer(view, linger=linger, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for made in opened:
        engine(made).close()
        made.close()


@pytest.fixture
def producer(open_producer: Callable[[float], Producer]) -> Producer:
    return open_producer(0.0)


def engine(producer: Producer) -> FakeEngine:
    return producer._engine  # type: ignore[return-value]


def fill(producer: Producer) -> list[SubBatch]:
    """As many batches of one message as leave at once."""
    submitted = engine(producer).submitted
    for count in range(1, MAX_UNACKED_BATCHES + 1):
        producer.send(b"alone")
        eventually(lambda count=count: len(submitted) == count)
    assert [sub_batch.batch.num_rows for sub_batch in submitted] == [1] * MAX_UNACKED_BATCHES
    return submitted


def test_what_comes_while_many_have_no_outcome_leaves_together_when_one_has(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smq.producer, "MAX_BATCH_DELAY_SECONDS", 3600.0)
    submitted = fill(producer)
    for _ in range(10):
        producer.send(b"together")
    engine(producer).answer(submitted[0])
    eventually(lambda: len(submitted) > MAX_UNACKED_BATCHES)
    assert submitted[MAX_UNACKED_BATCHES].batch.num_rows == 10


def test_it_leaves_after_a_while_though_none_has(producer: Producer) -> None:
    submitted = fill(producer)
    producer.send(b"patient")
    eventually(lambda: len(submitted) > MAX_UNACKED_BATCHES)


def test_a_flush_waits_for_nobody(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smq.producer, "MAX_BATCH_DELAY_SECONDS", 3600.0)
    submitted = fill(producer)
    producer.send(b"flushed")
    with pytest.raises(DeliveryTimeout):
        producer.flush(timeout=0.01)
    assert len(submitted) == MAX_UNACKED_BATCHES + 1


@pytest.fixture
def lingering_producer(open_producer: Callable[[float], Producer], monkeypatch: pytest.MonkeyPatch) -> Producer:
    monkeypatch.setattr(smq.producer, "MAX_BATCH_DELAY_SECONDS", 3600.0)
    return open_producer(0.001)


def test_a_small_batch_that_has_lingered_waits_for_the_one_before(lingering_producer: Producer) -> None:
    submitted = engine(lingering_producer).submitted
    lingering_producer.send(b"first")
    eventually(lambda: len(submitted) == 1)
    lingering_producer.send(b"waits")
    eventually(lambda: lingering_producer._waiting_for_outcome)
    lingering_producer.send(b"joins")
    assert len(submitted) == 1
    engine(lingering_producer).answer(submitted[0])
    eventually(lambda: len(submitted) == 2)
    assert submitted[1].batch.num_rows == 2


def test_a_batch_that_is_worth_its_cost_waits_for_none(lingering_producer: Producer) -> None:
    submitted = engine(lingering_producer).submitted
    for count in range(1, 4):
        lingering_producer.send(b"x" * (SMALL_BATCH_BYTES + 1))
        eventually(lambda count=count: len(submitted) == count)
