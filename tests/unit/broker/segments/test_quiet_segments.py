"""Primaries with little traffic write few chunks, and still notice early that they are sealed."""

from __future__ import annotations

import pytest

from smq_core.errors import StoreUnavailable
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import SECOND, Topic
from smq_core.replica.segment_replica import ReplicaState
from support.in_memory.quiet_broker import POLL, QuietBroker
from support.processes.broker import make_topic

PUTS, CHECKS = "smq_chunks_written_total", "smq_chain_checks_total"


def quiet_topic() -> Topic:
    return make_topic(flush_interval=10 * SECOND, flush_max_interval=120 * SECOND)


@pytest.fixture
def broker() -> QuietBroker:
    return QuietBroker(quiet_topic())


def test_a_quiet_segment_writes_one_chunk_in_its_longest_interval(broker: QuietBroker) -> None:
    for _ in range(12):
        broker.append(broker.segments[0])
        broker.advance(10)
    assert broker.metric(PUTS) == broker.store.calls["put_new"] == 1
    assert broker.segments[0].machine.chain_end == 12


def test_without_a_longest_interval_it_writes_as_before() -> None:
    broker = QuietBroker(make_topic(flush_interval=10 * SECOND))
    for _ in range(12):
        broker.append(broker.segments[0])
        broker.advance(10)
    assert broker.metric(PUTS) == 12 and broker.metric(CHECKS) == 0
    assert set(broker.store.calls) == {"put_new"}, "and requests nothing else"


def test_a_waiting_tail_costs_one_read_in_each_interval(broker: QuietBroker) -> None:
    broker.append(broker.segments[0])
    broker.advance(119)
    assert broker.metric(CHECKS) == sum(broker.store.calls.values()) == 11
    broker.advance(30)
    assert (broker.metric(PUTS), broker.metric(CHECKS)) == (1, 11), "an empty tail waits for nothing"


def test_a_seal_by_others_is_noticed_within_the_interval(broker: QuietBroker) -> None:
    hosted = broker.segments[0]
    broker.append(hosted)
    broker.advance(15)
    assert not broker.taken
    seal = ChunkInfo(segment=hosted.name, first=0, rows=0, writer="other", nonce="n", sealed=True)
    hosted.chain.put_seal(seal)
    broker.advance(10)
    assert broker.taken == [hosted] and hosted.machine.state is ReplicaState.FENCED
    broker.advance(30)
    assert broker.taken == [hosted] and broker.metric(PUTS) == 0, "a fenced segment is left to its seal"


def test_a_check_without_an_answer_changes_nothing_and_is_repeated(broker: QuietBroker) -> None:
    def fail(_: str) -> None:
        raise StoreUnavailable("the filer is away")

    hosted = broker.segments[0]
    broker.append(hosted)
    broker.store.before = fail
    broker.advance(15)
    assert broker.metric(CHECKS) == broker.metric("smq_store_errors_total") == 1
    assert hosted.machine.state is ReplicaState.OPEN and not hosted.flush_schedule.queued
    broker.store.before = lambda _: None
    broker.advance(10)
    assert broker.metric(CHECKS) == 2
    broker.advance(100)
    assert broker.metric(PUTS) == 1, "and the chunk is written in time"


def test_no_chunk_is_written_while_the_chain_is_read(broker: QuietBroker) -> None:
    """The broker's own chunk would look like another writer's."""
    hosted = broker.segments[0]
    due_meanwhile = []

    def request_a_chunk(name: str) -> None:
        if name != "put_new":
            with hosted:
                hosted.flush_schedule.request_early()
            due_meanwhile.append(broker.chunks_due)

    broker.append(hosted)
    broker.store.before = request_a_chunk
    broker.advance(10)
    assert due_meanwhile == [0] and broker.chunks_due == 1, "the request is served after the check"
    assert broker.metric(PUTS) == 1 and hosted.machine.state is ReplicaState.OPEN and not broker.taken


def test_a_tail_is_written_early_when_memory_is_short() -> None:
    broker = QuietBroker(quiet_topic(), memory=100_000)
    hosted = broker.segments[0]
    broker.append(hosted, 20_000)
    broker.append(hosted, 5_000)
    broker.clock.time += POLL
    broker.flusher.poll()
    broker.write_due()
    assert broker.metric(PUTS) == 1 and not hosted.machine.tail


def test_the_last_flush_of_a_broker_waits_for_nothing(broker: QuietBroker) -> None:
    broker.append(broker.segments[0])
    assert broker.flusher.flush_all() == [broker.segments[0].name]
    broker.write_due()
    assert broker.metric(PUTS) == 1 and broker.flusher.flush_all() == []
