"""Delivery callbacks: they may send, but not wait for what only their own thread can bring."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import smq
from smq.producer import Producer
from smq.producing.producer_runtime import ProducerRuntime
from smq_core.errors import InvalidRequest, Overloaded, SmqError
from support.in_memory.producer_sessions import DrivenLanes, producer_of, session
from support.in_memory.topic import TopicInMemory
from support.waiting import HANG_GUARD, eventually


@pytest.fixture
def producer(driven_sessions: None) -> Iterator[Producer]:
    with producer_of(TopicInMemory()) as made:
        yield made


def outcome_in_callback(producer: Producer, call: Callable[[], Any]) -> Any:
    """What ``call`` returns or raises in a callback of the first message, while the second one has no outcome."""
    outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(_: object) -> None:
        try:
            outcomes.put(call())
        except SmqError as error:
            outcomes.put(error)

    producer.write(pa.table({"value": [b"first"]})).add_done_callback(run)
    producer.write(pa.table({"value": [b"second" * 160_000]}))
    session(0).opened()
    eventually(lambda: session(0).written == [0, 1])
    session(0).ack(0, 0)
    return outcomes.get(timeout=HANG_GUARD)


@pytest.mark.parametrize("call", ["flush", "close", "result", "exception"])
def test_a_callback_that_would_wait_for_an_outcome_gets_an_error(producer: Producer, call: str) -> None:
    def wait() -> Any:
        if call in ("flush", "close"):
            return getattr(producer, call)()
        return getattr(producer.send(b"third"), call)()

    error = outcome_in_callback(producer, wait)
    assert isinstance(error, InvalidRequest) and "cannot wait" in error.message
    assert not producer.closed, "it changes nothing"


def test_a_client_that_a_callback_closes_stays_open(producer: Producer) -> None:
    client = smq.connect("127.0.0.1:1")
    client._runtime = runtime = ProducerRuntime(lanes=DrivenLanes())
    client._add(producer)
    error = outcome_in_callback(producer, client.close)
    assert isinstance(error, InvalidRequest) and "cannot wait" in error.message
    assert not producer.closed and "closed" not in repr(client)
    session(0).ack(1, 1)
    client.close()
    assert producer.closed and client._runtime is runtime


def test_a_callback_that_sends_without_capacity_gets_an_error_at_once(producer: Producer) -> None:
    error = outcome_in_callback(producer, lambda: producer.send_many([b"x" * 50_000] * 8))
    assert isinstance(error, Overloaded) and "a delivery callback cannot wait" in error.message


def test_a_callback_may_send_and_see_what_is_done(producer: Producer) -> None:
    delivery = outcome_in_callback(producer, lambda: producer.send(b"third"))
    eventually(lambda: session(0).written == [0, 1, 2])
    assert not delivery.done()
    session(0).ack(1, 1)
    session(0).ack(2, 2)
    assert delivery.result(HANG_GUARD).offset == 2


def test_a_callback_runs_without_a_lock_for_which_the_program_may_wait(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that flushes with a lock held, for which its callback waits, would hang with it."""
    taken = threading.Event()

    def take() -> None:
        with producer._batcher._handover_lock:
            taken.set()

    def callback(_: object) -> None:
        other = threading.Thread(target=take, daemon=True)
        other.start()
        other.join(HANG_GUARD)
        outcomes.put(taken.is_set())

    def refuse(*_: Any) -> None:
        raise InvalidRequest("no")

    outcomes: queue.SimpleQueue[bool] = queue.SimpleQueue()
    monkeypatch.setattr(producer._engine, "submit", refuse)
    producer.send(b"first").add_done_callback(callback)
    assert outcomes.get(timeout=2 * HANG_GUARD)


def test_a_signal_handler_may_write_in_the_middle_of_a_submission(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, lock = producer._engine.submit, producer._batcher._handover_lock
    written: list[bool] = []

    def write(*_: object) -> None:
        monkeypatch.setattr(producer._engine, "submit", submit)
        written.append(lock.acquire(blocking=False))  # else the test would hang in place of failing
        if written[0]:
            lock.release()
            producer.write(pa.table({"value": [b"from the handler"]}))

    def signalled(*arguments: Any) -> None:
        signal.raise_signal(signal.SIGUSR1)
        submit(*arguments)

    before = signal.signal(signal.SIGUSR1, write)
    try:
        monkeypatch.setattr(producer._engine, "submit", signalled)
        producer.write(pa.table({"value": [b"first"]}))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert written == [True]
    session(0).opened()
    eventually(lambda: session(0).written)
    last = len(written)
    eventually(lambda: session(0).written[-1] == last)
    session(0).ack(0, 0)
    session(0).ack(last, last)


def test_a_callback_of_a_batch_that_cannot_be_submitted_may_send(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, refused = producer._engine.submit, InvalidRequest("no")
    later: list[Any] = []

    def refuse(*_: Any) -> None:
        monkeypatch.setattr(producer._engine, "submit", submit)
        raise refused

    monkeypatch.setattr(producer._engine, "submit", refuse)

    def send(_: object) -> None:
        lock = producer._batcher._handover_lock
        if lock.acquire(blocking=False):  # else the test would hang in place of failing
            lock.release()
            later.append(producer.write(pa.table({"value": [b"later"]})))
        else:
            later.append(None)

    first = producer.send(b"first")
    first.add_done_callback(send)
    assert first.exception(HANG_GUARD) is refused
    eventually(lambda: later)
    assert later[0] is not None
    session(0).opened()
    eventually(lambda: session(0).written == [0])
    session(0).ack(0, 0)
    assert later[0].result(HANG_GUARD).offsets.tolist() == [0]
