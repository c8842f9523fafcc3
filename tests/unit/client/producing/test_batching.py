"""When messages are sent one by one, and when they share a batch because earlier ones have no outcome yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pyarrow as pa
import pytest

from smq.delivery import Delivery, Receipt
from smq.producer import Producer
from smq.producing import message_batcher
from smq.producing.batching import batch_delay
from smq.producing.batching.batch_delay import MAX_UNACKED_BATCHES, SMALL_BATCH_BYTES
from smq.producing.batching.partitioning import SubBatch
from smq.producing.runtime.timers import SLACK_SECONDS, Timers
from smq_core.errors import DeliveryTimeout
from smq_core.model.keyspace import partition_of
from support.in_memory.acking_engine import engine, sent_batch
from support.waiting import eventually


@pytest.fixture
def producer(open_producer: Callable[[float], Producer]) -> Producer:
    return open_producer(0.0)


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
    monkeypatch.setattr(batch_delay, "MAX_BATCH_DELAY_SECONDS", 3600.0)
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
    monkeypatch.setattr(batch_delay, "MAX_BATCH_DELAY_SECONDS", 3600.0)
    submitted = fill(producer)
    producer.send(b"flushed")
    with pytest.raises(DeliveryTimeout):
        producer.flush(timeout=0.01)
    assert len(submitted) == MAX_UNACKED_BATCHES + 1


@pytest.fixture
def lingering_producer(open_producer: Callable[[float], Producer], monkeypatch: pytest.MonkeyPatch) -> Producer:
    monkeypatch.setattr(batch_delay, "MAX_BATCH_DELAY_SECONDS", 3600.0)
    return open_producer(0.001)


def test_a_small_batch_that_has_lingered_waits_for_the_one_before(lingering_producer: Producer) -> None:
    submitted = engine(lingering_producer).submitted
    lingering_producer.send(b"first")
    eventually(lambda: len(submitted) == 1)
    lingering_producer.send(b"waits")
    eventually(lambda: lingering_producer._batcher._waiting_for_outcome)
    lingering_producer.send(b"joins")
    assert len(submitted) == 1
    engine(lingering_producer).answer(submitted[0])
    eventually(lambda: len(submitted) == 2)
    assert submitted[1].batch.num_rows == 2


def test_a_timer_that_calls_a_little_early_sends_nothing_too_early(
    open_producer: Callable[[float], Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_delay, "MAX_BATCH_DELAY_SECONDS", 3600.0)
    producer = open_producer(3600.0)
    producer.send(b"first")
    with pytest.raises(DeliveryTimeout):
        producer.flush(timeout=0.0)
    producer.send(b"waits")
    batcher, now = producer._batcher, time.monotonic()
    with monkeypatch.context() as patched, batcher._lock:
        patched.setattr(message_batcher, "time", SimpleNamespace(monotonic=lambda: now))
        assert batcher._current is not None
        batcher._current.due_at = now + SLACK_SECONDS / 2
        assert not batcher._current_due(), "the first batch has no outcome"
        assert batcher._waiting_for_outcome
    with pytest.raises(DeliveryTimeout):
        producer.flush(timeout=0.0)  # the engine answers what it has when it is closed


def test_a_batch_that_is_worth_its_cost_waits_for_none(lingering_producer: Producer) -> None:
    submitted = engine(lingering_producer).submitted
    for count in range(1, 4):
        lingering_producer.send(b"x" * (SMALL_BATCH_BYTES + 1))
        eventually(lambda count=count: len(submitted) == count)


@pytest.mark.parametrize("many", [False, True])
def test_a_batch_that_waits_leaves_when_it_has_grown_enough(
    lingering_producer: Producer, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    # It has lingered when it is begun, as after a pause of its thread.
    monkeypatch.setattr(Timers, "next_tick", lambda timers, now, interval: now)
    submitted = engine(lingering_producer).submitted
    lingering_producer.send(b"first")
    eventually(lambda: len(submitted) == 1)
    lingering_producer.send(b"waits for the outcome of the first")
    large = b"x" * (SMALL_BATCH_BYTES + 1)
    if many:
        lingering_producer.send_many([large])
    else:
        lingering_producer.send(large)
    eventually(lambda: len(submitted) == 2)
    assert submitted[1].batch.num_rows == 2


class VirtualTimers:
    """Timers and a clock that the test moves. They run in the test's own thread."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._calls: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self._now

    def begin_batch(self, now: float, linger: float) -> float:
        return now + linger

    def call_at(self, at: float, call: Callable[[], None]) -> None:
        self._calls.append((at, call))

    def advance(self, seconds: float) -> None:
        until = self._now + seconds
        while due := [it for it in self._calls if it[0] <= until]:
            first = min(due, key=lambda it: it[0])
            self._calls.remove(first)
            self._now = max(self._now, first[0])
            first[1]()
        self._now = until


def test_a_long_outage_leaves_few_batches(
    open_producer: Callable[[float], Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, timers = open_producer(0.005), VirtualTimers()
    monkeypatch.setattr(message_batcher, "time", timers)
    monkeypatch.setattr(producer._batcher, "_timers", timers)
    for _ in range(60 * 100):
        producer.send(b"one every 10 ms")
        timers.advance(0.01)
    timers.advance(1.0)
    submitted = engine(producer).submitted
    assert sum(sub_batch.batch.num_rows for sub_batch in submitted) == 6000
    assert len(submitted) < 400, "they would be 3,000 with the same delay for all"


def test_messages_of_one_batch_have_their_own_times(open_producer: Callable[[float], Producer]) -> None:
    producer = open_producer(3600.0)
    before = time.time_ns() // 1000
    producer.send(b"now")
    producer.send(b"given", timestamp=5)
    producer.send(b"given with a header", headers=[("h", b"v")], timestamp=-7)
    producer.send(b"now with a header", headers=[("h", b"v")])
    producer.send_many([b"now, too"])
    after = time.time_ns() // 1000
    with pytest.raises(DeliveryTimeout):
        producer.flush(timeout=0.0)

    (sub_batch,) = engine(producer).submitted
    times = sent_batch(sub_batch).column("timestamp").cast(pa.int64()).to_pylist()
    assert times[1:3] == [5, -7]
    assert before <= times[0] <= times[3] <= times[4] <= after


@pytest.mark.parametrize("keys", [[None, b"k", None, None, b"l"], [b"k", None, None], [b"k", b"l"], [None, None]])
def test_messages_of_one_batch_have_their_own_keys(
    open_producer: Callable[[float], Producer], keys: list[bytes | None]
) -> None:
    producer = open_producer(3600.0)
    for number, key in enumerate(keys):
        producer.send(b"%d" % number, key=key)
    producer.send_many([b"%d" % (len(keys) + number) for number in range(len(keys))], keys)
    producer.send_many([b"-1", b"-2"])
    producer.send(b"-3", key=b"last")
    with pytest.raises(DeliveryTimeout):
        producer.flush(timeout=0.0)

    (sub_batch,) = engine(producer).submitted
    batch = sent_batch(sub_batch)
    expected = [*keys, *keys, None, None, b"last"]
    assert batch.column("key").to_pylist() == expected
    partitions = batch.column("partition").to_pylist()
    assert [p for p, key in zip(partitions, expected, strict=True) if key] == [
        partition_of(k, 8) for k in expected if k
    ]
    assert len({p for p, key in zip(partitions, expected, strict=True) if key is None}) == 1
    values = [*range(2 * len(keys)), -1, -2, -3]
    assert [int(value) for value in batch.column("value").to_pylist()] == values


def test_threads_that_send_at_once_get_the_receipts_of_their_own_messages(
    open_producer: Callable[[float], Producer],
) -> None:
    producer = open_producer(3600.0)
    found: dict[bytes, Delivery[Receipt]] = {}

    def send(thread: int) -> None:
        for number in range(2000):
            value = b"%d %d" % (thread, number)
            found[value] = producer.send(value, key=value)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(DeliveryTimeout):
        producer.flush(timeout=0.0)
    (sub_batch,) = engine(producer).submitted
    engine(producer).answer(sub_batch)

    batch = sent_batch(sub_batch)
    values = batch.column("value").to_pylist()
    assert batch.column("key").to_pylist() == values
    assert {value: delivery.result(0).offset for value, delivery in found.items()} == {
        value: offset for offset, value in enumerate(values)
    }
    for own in range(4):
        sent = [value for value in values if value.startswith(b"%d " % own)]
        assert sent == [b"%d %d" % (own, number) for number in range(2000)]
