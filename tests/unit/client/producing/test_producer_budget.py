"""A producer's budget: every byte that was reserved comes back, once, whatever becomes of the messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from smq.producing import engine
from smq.producing.batching.partitioning import SubBatch
from smq.producing.delivery_state import DeliveryState
from smq.producing.engine import ProducerEngine
from smq.producing.in_flight_budget import InFlightBudget
from smq_core.errors import DeliveryTimeout, InvalidRequest, Overloaded
from smq_core.model.entities import Segment
from smq_core.producing.send_queue import SentSubBatch
from smq_proto.v1 import data_pb2 as pb
from support.in_memory.brokers import batch_of
from support.in_memory.topic import PARTITIONS, TopicInMemory
from support.waiting import eventually

TIMEOUT = 1000.0
CREATED = 5.0
MIB = 1 << 20


class PlayedLanes:
    """Sessions that the test plays: it takes the batches, and brings the replies."""

    def open_session(self, segment: Segment, **_: object) -> Any:
        return SimpleNamespace(notify=lambda: None)

    def close(self) -> None: ...


class Bench:
    """An engine with a budget of 16 MiB over one segment. ``now`` is its clock, in seconds."""

    def __init__(self) -> None:
        self.view = TopicInMemory()
        self.now = CREATED
        view: Any = self.view
        runtime: Any = SimpleNamespace(lanes=PlayedLanes(), timers=SimpleNamespace(call_at=lambda at, call: None))
        self.engine = ProducerEngine(
            view,
            producer_id="p",
            epoch=0,
            instance="i",
            timeout=TIMEOUT,
            max_in_flight=16 * MIB,
            on_resolved=lambda: None,
            runtime=runtime,
        )

    def submit(self, nbytes: int) -> DeliveryState:
        """One batch of that cost, as ``write`` submits it."""
        state = DeliveryState(3, self.engine.lock)
        self.engine.reserve(nbytes, 0.0)
        partitions = np.arange(3, dtype=np.int32) % PARTITIONS
        self.engine.submit(
            SubBatch(batch=batch_of(3, 0), delivery_state=state, rows=None, cost=nbytes, created_at=CREATED), partitions
        )
        return state

    def expire(self, age: float) -> None:
        self.now = CREATED + age
        self.engine._tick()

    def open_stream(self) -> None:
        self.engine.on_reply(1, pb.ProducerReply(opened=pb.ProducerReply.Opened()))

    def send_next(self) -> None:
        with self.engine.lock:
            assert isinstance(self.engine.next_batch(1), SentSubBatch)

    def ack(self, sequence: int) -> None:
        acks = pb.ProducerReply.Acks(first_sequence=sequence, first_offsets=[3 * sequence])
        self.engine.on_reply(1, pb.ProducerReply(acks=acks))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made: list[Bench] = []
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: made[0].now if made else CREATED))
    made.append(Bench())
    yield made[0]
    made[0].engine.close()


def test_a_queue_that_expires_gives_its_budget_back(bench: Bench) -> None:
    states = [bench.submit(4 * MIB) for _ in range(4)]
    assert bench.engine.full
    with pytest.raises(Overloaded):
        bench.engine.reserve(1, 0.0)

    bench.expire(TIMEOUT - 1)
    assert bench.engine.in_flight == 16 * MIB and all(state.left for state in states), "nothing is due yet"

    bench.expire(TIMEOUT)
    assert bench.engine.in_flight == 0 and not bench.engine.full
    assert all(isinstance(state.first_error(), DeliveryTimeout) for state in states)
    bench.engine.reserve(16 * MIB, 0.0)


def test_a_writer_that_waits_goes_on_when_a_queue_expires(bench: Bench) -> None:
    bench.submit(16 * MIB)
    waiting = threading.Thread(target=lambda: bench.engine.reserve(16 * MIB, 600.0), daemon=True)
    waiting.start()
    eventually(lambda: bench.engine._budget._freed._waiters)  # type: ignore[attr-defined]

    bench.expire(TIMEOUT)
    eventually(lambda: not waiting.is_alive(), "the writer goes on")
    assert bench.engine.in_flight == 16 * MIB


def test_a_batch_that_was_sent_keeps_its_budget_until_its_outcome_is_known(bench: Bench) -> None:
    state = bench.submit(4 * MIB)
    bench.open_stream()
    bench.send_next()

    bench.expire(TIMEOUT)
    assert isinstance(state.first_error(), DeliveryTimeout)
    assert bench.engine.in_flight == 4 * MIB, "it may still be on its way"
    bench.expire(TIMEOUT + 1)
    assert bench.engine.in_flight == 4 * MIB

    bench.ack(0)
    assert bench.engine.in_flight == 0
    bench.ack(0)
    assert bench.engine.in_flight == 0, "an ack that comes again gives nothing back"


def test_acks_give_the_budget_back_batch_by_batch(bench: Bench) -> None:
    for _ in range(2):
        bench.submit(4 * MIB)
    bench.open_stream()
    for _ in range(2):
        bench.send_next()
    bench.ack(0)
    assert bench.engine.in_flight == 4 * MIB
    bench.ack(1)
    assert bench.engine.in_flight == 0


def test_a_batch_that_could_not_be_submitted_gives_its_budget_back(bench: Bench) -> None:
    state = DeliveryState(3, bench.engine.lock)
    bench.engine.reserve_now(4 * MIB)
    bench.engine.fail_batch(state, 4 * MIB, InvalidRequest("no"))
    assert bench.engine.in_flight == 0 and isinstance(state.first_error(), InvalidRequest)


def test_a_batch_that_moves_to_successors_costs_the_same_and_gives_it_back_once(bench: Bench) -> None:
    state = bench.submit(9 * MIB)
    first = bench.view.first
    low = bench.view.segment(1, 0, 1, (first.name,))
    high = bench.view.segment(2, 1, PARTITIONS, (first.name,))
    bench.view.seal(first, 0, low, high)

    queues = bench.engine._machine.send_queues.send_queues
    assert [name for name, send_queue in queues.items() if not send_queue.idle] == [low.name]
    assert bench.engine.in_flight == 9 * MIB
    bench.expire(TIMEOUT)
    assert bench.engine.in_flight == 0 and isinstance(state.first_error(), DeliveryTimeout)


def test_a_producer_that_ends_holds_nothing_and_lets_nobody_wait(bench: Bench) -> None:
    state = bench.submit(16 * MIB)
    bench.engine.reserve_now(MIB)  # of a batch that is not submitted yet
    errors: list[BaseException] = []

    def write() -> None:
        try:
            bench.engine.reserve(MIB, 600.0)
        except InvalidRequest as error:
            errors.append(error)

    waiting = threading.Thread(target=write, daemon=True)
    waiting.start()
    eventually(lambda: bench.engine._budget._freed._waiters)  # type: ignore[attr-defined]
    bench.engine.fail(InvalidRequest("fenced"))
    eventually(lambda: not waiting.is_alive())
    assert bench.engine.in_flight == 0 and str(errors[0]) == "fenced" == str(state.first_error())


def test_who_waits_behind_one_that_gives_up_goes_on() -> None:
    lock, begun = threading.Lock(), threading.Event()
    budget = InFlightBudget("default/t", 100, lock)
    outcomes: list[str] = []

    def wait(nbytes: int, timeout: float) -> None:
        with lock:
            begun.set()
            try:
                budget.wait(nbytes, timeout)
                outcomes.append("capacity")
            except Overloaded:
                outcomes.append("overloaded")

    with lock:
        budget.add(50)
    large = threading.Thread(target=wait, args=(90, 0.2))
    large.start()
    begun.wait()
    small = threading.Thread(target=wait, args=(10, 15.0))
    small.start()
    for thread in (large, small):
        thread.join()
    assert outcomes == ["overloaded", "capacity"], "nothing was released, and nothing had to be"


def test_an_outcome_after_the_end_frees_nothing_twice() -> None:
    budget = InFlightBudget("default/t", 100, lock := threading.Lock())
    with lock:
        budget.add(50)
        budget.close()
        budget.release(50)
        budget.add(7)
    assert budget.used == 0
