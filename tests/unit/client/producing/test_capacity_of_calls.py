"""Calls with many messages: nothing is sent before all of them have capacity, or the error says what was sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from smq import PartlySent
from smq.aio import AsyncProducer
from smq.producer import Producer
from smq.producing.in_flight_budget import InFlightBudget
from smq_core.errors import Overloaded
from support.in_memory.producer_sessions import producer_of, session
from support.in_memory.topic import TopicInMemory
from support.waiting import HANG_GUARD, eventually

# Nothing acks meanwhile, so a call that waits for capacity ends by it on any machine.
TIMEOUT = 0.2
KIB = 1 << 10
BATCH_BYTES = 256 * KIB

Send = Callable[[Producer, int, int], Any]


def write(producer: Producer, first: int, stop: int) -> Any:
    return producer.write(pa.table({"value": pa.array([value(n) for n in range(first, stop)], pa.binary())}))


def send_many(producer: Producer, first: int, stop: int) -> Any:
    return producer.send_many([value(n) for n in range(first, stop)])


def value(number: int) -> bytes:
    return number.to_bytes(4, "big") * (16 * KIB - 64)


CALLS = pytest.mark.parametrize("send", [write, send_many])


@pytest.fixture
def producer(driven_sessions: None) -> Iterator[Producer]:
    """What it has sent first takes more than half of its capacity, and has no ack."""
    with producer_of(TopicInMemory(), batch_bytes=BATCH_BYTES) as made:
        made._timeout = made._batcher._timeout = TIMEOUT  # deliveries have all the time that they need
        made.write(pa.table({"value": [value(n) for n in range(10)]}))
        session(0).opened()
        wait_until_sent(10)
        yield made


def sent() -> list[int]:
    """The numbers of all messages that a broker got."""
    values = [it for batch in session(0).batches for it in batch.column("value").to_pylist()]
    return [int.from_bytes(it[:4], "big") for it in values]


def wait_until_sent(stop: int) -> None:
    eventually(lambda: sent() == list(range(stop)), f"all messages up to {stop} are sent once")


def ack_all() -> None:
    offset = 0
    for sequence, batch in enumerate(list(session(0).batches)):
        session(0).ack(sequence, offset)
        offset += batch.num_rows


@CALLS
def test_a_call_without_capacity_for_all_of_it_sends_nothing(producer: Producer, send: Send) -> None:
    before = producer._engine.in_flight
    with pytest.raises(Overloaded, match="there was no capacity"):
        send(producer, 10, 17)
    assert producer._engine.in_flight == before
    ack_all()
    again = send(producer, 10, 17)
    wait_until_sent(17)
    ack_all()
    assert again.result(HANG_GUARD).offsets.tolist() == list(range(10, 17))
    assert producer._engine.in_flight == 0


@CALLS
def test_a_call_without_messages_does_not_wait_for_capacity(producer: Producer, send: Send) -> None:
    producer._engine.reserve_now(2 * producer._engine.max_undivided_bytes)
    assert send(producer, 0, 0).result(0).offsets.tolist() == []
    producer._engine.release(2 * producer._engine.max_undivided_bytes)


@CALLS
def test_a_call_beyond_the_capacity_says_what_it_has_sent(producer: Producer, send: Send) -> None:
    ack_all()
    with pytest.raises(PartlySent, match=r"the first \d+ of 50 messages were sent") as raised:
        send(producer, 10, 60)
    error = raised.value
    assert 0 < error.sent < 50 and isinstance(error.__cause__, Overloaded)
    wait_until_sent(10 + error.sent)
    ack_all()
    assert error.delivery.result(HANG_GUARD).offsets.tolist() == list(range(10, 10 + error.sent))
    for first in range(10 + error.sent, 60, 10):
        send(producer, first, min(first + 10, 60))
        wait_until_sent(min(first + 10, 60))
        ack_all()


def test_the_delivery_of_what_was_sent_can_be_awaited(producer: Producer) -> None:
    ack_all()

    async def run() -> None:
        with pytest.raises(PartlySent) as raised:
            await AsyncProducer(producer).send_many([value(n) for n in range(10, 60)])
        wait_until_sent(10 + raised.value.sent)
        ack_all()
        assert len(await raised.value.delivery) == raised.value.sent

    asyncio.run(run())


def test_small_batches_do_not_take_the_capacity_that_a_table_waits_for() -> None:
    lock = threading.Lock()
    budget = InFlightBudget("t", 100, lock)
    with lock:
        budget.add(60)

    def reserve() -> None:
        with lock:
            budget.wait(50, HANG_GUARD)
            budget.add(50)

    waiting = threading.Thread(target=reserve, daemon=True)
    waiting.start()
    eventually(lambda: budget.full, "the next small batch waits, too")
    with lock:
        budget.release(20)
    eventually(lambda: not waiting.is_alive())
    assert budget.used == 90 and not budget.full
