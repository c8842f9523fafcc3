"""Without lingering: when messages leave one by one, and when they share a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import smq.producer
from smq.cutting import Piece
from smq.producer import MOST_AT_ONCE, Producer
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
def producer(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(smq.producer, "Engine", SilentEngine)
    view = SimpleNamespace(name="t", known=SimpleNamespace(topic=Topic("default/t", "uid", TopicSpec(partitions=8))))
    options = {"batch_bytes": 1 << 20, "max_in_flight": 1 << 20, "timeout": 5.0, "producer_id": None, "epoch": 0}
    made = Producer(view, linger=0.0, **options)  # type: ignore[arg-type]
    yield made
    engine(made).close()
    made.close()


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
