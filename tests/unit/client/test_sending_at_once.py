"""When messages leave one by one, and when they share a batch because others have no outcome yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

import smq.producer
from smq.cutting import Piece
from smq.producer import MOST_AT_ONCE, SMALL_BYTES, Producer
from smq_core.errors import DeliveryTimeout
from smq_core.model import Topic, TopicSpec
from support.waiting import eventually


class SilentEngine:
    """Takes every batch; the test says what becomes of it."""

    max_batch_bytes = 16 << 20
    full = False
    settled: Callable[[], None]

    def __init__(self, *_: object) -> None:
        self.lock = threading.Lock()
        self.taken: list[Piece] = []

    def take(self, nbytes: int) -> None: ...

    def submit(self, piece: Piece, _: object) -> None:
        self.taken.append(piece)

    def answer(self, piece: Piece) -> None:
        with self.lock:
            calls = piece.fate.delivered(None, "segment", 0)
        for call in calls:
            call()
        self.settled()

    def close(self) -> None:
        for piece in self.taken:
            if piece.fate.left:
                self.answer(piece)


@pytest.fixture
def open_producer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], Producer]]:
    """Makes one with that linger, in seconds."""
    monkeypatch.setattr(smq.producer, "Engine", SilentEngine)
    view = SimpleNamespace(name="t", known=SimpleNamespace(topic=Topic("default/t", "uid", TopicSpec(partitions=8))))
    options = {"batch_bytes": 1 << 20, "max_in_flight": 1 << 20, "timeout": 5.0, "producer_id": None, "epoch": 0}
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


def engine(producer: Producer) -> SilentEngine:
    return producer._engine  # type: ignore[return-value]


def fill(producer: Producer) -> list[Piece]:
    """As many batches of one message as leave at once."""
    taken = engine(producer).taken
    for count in range(1, MOST_AT_ONCE + 1):
        producer.send(b"alone")
        eventually(lambda count=count: len(taken) == count)
    assert [piece.batch.num_rows for piece in taken] == [1] * MOST_AT_ONCE
    return taken


def test_what_comes_while_many_have_no_outcome_leaves_together_when_one_has(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smq.producer, "PATIENCE", 3600.0)
    taken = fill(producer)
    for _ in range(10):
        producer.send(b"together")
    engine(producer).answer(taken[0])
    eventually(lambda: len(taken) > MOST_AT_ONCE)
    assert taken[MOST_AT_ONCE].batch.num_rows == 10


def test_it_leaves_after_a_while_though_none_has(producer: Producer) -> None:
    taken = fill(producer)
    producer.send(b"patient")
    eventually(lambda: len(taken) > MOST_AT_ONCE)


def test_a_flush_waits_for_nobody(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smq.producer, "PATIENCE", 3600.0)
    taken = fill(producer)
    producer.send(b"flushed")
    with pytest.raises(DeliveryTimeout):
        producer.flush(timeout=0.01)
    assert len(taken) == MOST_AT_ONCE + 1


@pytest.fixture
def lingering(open_producer: Callable[[float], Producer], monkeypatch: pytest.MonkeyPatch) -> Producer:
    monkeypatch.setattr(smq.producer, "PATIENCE", 3600.0)
    return open_producer(0.001)


def test_a_small_batch_that_has_lingered_waits_for_the_one_before(lingering: Producer) -> None:
    taken = engine(lingering).taken
    lingering.send(b"first")
    eventually(lambda: len(taken) == 1)
    lingering.send(b"waits")
    eventually(lambda: lingering._waits)
    lingering.send(b"joins")
    assert len(taken) == 1
    engine(lingering).answer(taken[0])
    eventually(lambda: len(taken) == 2)
    assert taken[1].batch.num_rows == 2


def test_a_batch_that_is_worth_its_cost_waits_for_none(lingering: Producer) -> None:
    taken = engine(lingering).taken
    for count in range(1, 4):
        lingering.send(b"x" * (SMALL_BYTES + 1))
        eventually(lambda count=count: len(taken) == count)
