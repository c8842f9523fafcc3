"""The flusher's attempts, one at a time: first ones, second ones, and what it must not do meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import Payload
from smq_broker.segments import flusher as flushing
from smq_broker.segments.filer_failure import UNANSWERED_SECONDS, FilerFailure
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import SmqError, StoreStateUnknown, StoreUnavailable
from smq_core.model.chunk_info import ChunkInfo
from smq_core.replica.log_entries import Ack, BatchId, IncomingBatch
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.object_store.conditional_writes import WriteConflict
from smq_storage.object_store.store import Store, open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic
from support.waiting import eventually

SECOND = 1_000_000


class FlakyStore:
    """``before_put`` may raise instead of a PUT, ``after_put`` instead of its answer. Reads need ``readable``."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        self.before_put: Callable[[], None] = lambda: None
        self.after_put: Callable[[], None] = lambda: None
        self.readable = True
        self.puts = 0

    def put_new(self, path: str, data: Any) -> str:
        self.puts += 1
        self.before_put()
        etag = self.store.put_new(path, data)
        self.after_put()
        return etag

    def __getattr__(self, name: str) -> Any:
        if name.startswith("get") and not self.readable:
            raise StoreUnavailable("the filer is away")
        return getattr(self.store, name)


class VirtualClock:
    """Microseconds, which move only if the test says so."""

    def __init__(self) -> None:
        self.time = 1_000 * SECOND

    def now(self) -> int:
        return self.time

    def follow(self) -> None:
        pass


class StoredSegment:
    """A primary without followers, which acks what is in the filer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flushing, "PUT_TIMEOUT_SECONDS", 0.0)  # one PUT in each attempt
        self.store = FlakyStore()
        self.broker = BrokerParts("b1", self.store)
        self.flusher = self.broker.flusher
        self.topic = make_topic()
        self.segment = make_segment(self.topic, self.broker.replica)
        self.hosted: HostedSegment = self.broker.opener.open(self.topic, self.segment)
        self.clock = VirtualClock()
        self.hosted.clock = self.clock  # type: ignore[assignment]
        self.acks: list[Ack] = []
        self._sequence = 0

    def append(self) -> None:
        id_ = BatchId("p", 1, self._sequence, "one")
        self._sequence += 1
        with self.hosted as machine:
            assert self.hosted.memory.reserve(1000)
            machine.append(
                self,
                IncomingBatch(
                    id=id_,
                    rows=1,
                    nbytes=1000,
                    partition_min=0,
                    partition_max=0,
                    payload=Payload(ArrowBlock(rows([b"v"]))),
                ),
                self.clock.now(),
            )

    @property
    def queued(self) -> bool:
        return self.hosted.flush_schedule.queued

    @property
    def chain(self) -> list[ChunkInfo]:
        return list(self.hosted.chain.walk())

    def acked(self, acks: list[Ack]) -> None:
        self.acks += acks

    def wake(self) -> None: ...

    def fail(self, error: SmqError) -> None: ...


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> StoredSegment:
    return StoredSegment(monkeypatch)


def lose_the_answer() -> None:
    raise StoreStateUnknown("no answer")


def test_nothing_is_acked_before_its_chunk_is_in_the_filer(stored: StoredSegment) -> None:
    stored.append()
    assert stored.queued and not stored.acks
    stored.flusher.flush_next()
    assert [ack.first_offset for ack in stored.acks] == [0]
    assert stored.broker.memory.primary_usage()[0] == 0, "the tail's memory is given back"
    assert stored.broker.metric("smq_chunks_written_total") == 1


def test_an_unclear_put_that_was_applied_is_recognised_at_the_second_attempt(stored: StoredSegment) -> None:
    stored.store.after_put, stored.store.readable = lose_the_answer, False
    stored.append()
    stored.flusher.flush_next()
    assert not stored.acks and not stored.queued
    assert stored.broker.metric("smq_store_errors_total") == 1
    assert stored.broker.metric("smq_chunks_written_total") == 0
    assert stored.broker.memory.primary_usage()[0] == 1000, "the tail is kept"

    stored.store.after_put, stored.store.readable = lambda: None, True
    stored.flusher.poll()
    assert not stored.queued, "not before the pause is over"
    stored.clock.time += flushing.RETRY_AFTER_US
    stored.flusher.poll()
    assert stored.queued
    stored.flusher.flush_next()
    assert stored.hosted.machine.state is ReplicaState.OPEN, "its own chunk is no conflict"
    assert len(stored.acks) == 1 and len(stored.chain) == 1
    assert stored.broker.metric("smq_chunks_written_total") == 1
    assert stored.broker.memory.primary_usage()[0] == 0
    stored.append()
    stored.flusher.flush_next()
    assert len(stored.acks) == 2, "and the segment goes on"


def test_an_unclear_put_that_was_not_applied_is_written_by_the_second_attempt(stored: StoredSegment) -> None:
    stored.store.before_put, stored.store.readable = lose_the_answer, False
    stored.append()
    stored.flusher.flush_next()
    stored.append()
    assert not stored.queued, "one chunk at a time"
    stored.store.before_put, stored.store.readable = lambda: None, True
    stored.clock.time += flushing.RETRY_AFTER_US
    stored.flusher.poll()
    stored.flusher.flush_next()
    assert [(info.first, info.rows) for info in stored.chain] == [(0, 1)], "the chunk is the one of the first attempt"
    stored.flusher.flush_next()
    assert [(info.first, info.rows) for info in stored.chain] == [(0, 1), (1, 1)]
    assert [ack.first_offset for ack in stored.acks] == [0, 1]


def test_an_unexpected_error_is_counted_and_the_chunk_tried_again(
    stored: StoredSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("unexpected")

    stored.append()
    with monkeypatch.context() as damaged:
        damaged.setattr(flushing, "chunk_info", fail)
        stored.flusher.flush_next()
    assert stored.broker.metric("smq_thread_failures_total", thread="flush") == 1
    assert not stored.acks and not stored.queued
    stored.flusher.poll()
    assert not stored.queued
    stored.clock.time += flushing.RETRY_AFTER_FAILURE_US
    stored.flusher.poll()
    stored.flusher.flush_next()
    assert len(stored.acks) == 1


def test_a_taken_offset_fences_the_segment_and_acks_nothing(stored: StoredSegment) -> None:
    foreign = ChunkInfo(segment=stored.segment.name, first=0, rows=0, writer="other", nonce="n", sealed=True)
    assert not isinstance(stored.hosted.chain.put_seal(foreign), WriteConflict)
    stored.append()
    stored.flusher.flush_next()
    assert stored.hosted.machine.state is not ReplicaState.OPEN
    assert not stored.acks
    eventually(lambda: stored.hosted.machine.state is ReplicaState.SEALED)
    assert not stored.acks and stored.broker.metric("smq_chunks_written_total") == 0
    outcome = stored.hosted.machine.outcome
    assert outcome is not None and outcome.end == 0
    assert stored.broker.memory.primary_usage()[0] == 0


def test_a_seal_is_counted(stored: StoredSegment) -> None:
    stored.append()
    assert stored.broker.seal(stored.topic, stored.segment).end == 1
    assert stored.broker.metric("smq_segments_sealed_total") == 1
    stored.broker.seal(stored.topic, stored.segment)
    assert stored.broker.metric("smq_segments_sealed_total") == 1, "it is sealed once"


def test_a_last_flush_waits_for_what_failed_at_first(stored: StoredSegment) -> None:
    stored.store.before_put, stored.store.readable = lose_the_answer, False
    stored.append()
    stored.flusher.flush_next()
    for _ in range(3):
        assert stored.flusher.flush_all() == [stored.hosted.name]
    stored.store.before_put, stored.store.readable = lambda: None, True
    stored.clock.time += flushing.RETRY_AFTER_US
    stored.flusher.poll()
    stored.flusher.flush_next()
    assert stored.flusher.flush_all() == []


def test_a_primary_reports_since_when_the_filer_takes_no_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    it = StoredSegment(monkeypatch)
    hosted = it.hosted
    assert hosted.filer_failure.failure is None and not hosted.stalled_seconds()

    def full() -> None:
        raise StoreUnavailable("507 Insufficient Storage")

    it.store.before_put = full
    it.append()
    it.clock.time += 30 * SECOND
    it.flusher.poll()
    it.flusher.flush_next()
    assert hosted.filer_failure.failure is not None and "507" in hosted.filer_failure.failure[1]
    assert hosted.stalled_seconds() == 30.0, "the message is not acked"
    it.store.before_put = lambda: None
    it.clock.time += 30 * SECOND
    it.flusher.poll()
    it.flusher.flush_next()
    assert hosted.filer_failure.failure is None and not hosted.stalled_seconds()


def test_a_sealed_segment_reports_no_failure_of_the_filer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes its chunks any more, so nobody clears the failure."""
    it = StoredSegment(monkeypatch)
    parts = it.broker
    it.hosted.filer_failure.failed("507 Insufficient Storage")
    assert "507" in parts.reporter.status().filer_problem
    with it.hosted as machine:
        machine.fence()
    assert not parts.reporter.status().filer_problem


def test_producers_that_wait_for_memory_stall_their_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    hosted = StoredSegment(monkeypatch).hosted
    with hosted:
        monkeypatch.setattr(hosted.memory._process, "reserve", lambda nbytes: False)
        assert not hosted.memory.reserve(10)
    assert hosted.memory.refused_since is not None
    hosted.memory.refused_since -= 20
    assert hosted.stalled_seconds() >= 20
    hosted.memory._refused_last -= 10
    assert not hosted.stalled_seconds(), "the producer gave up"
    with hosted:
        assert not hosted.memory.reserve(10)
    assert hosted.stalled_seconds() < 10, "another producer waits since now"


def test_a_stall_is_found_without_a_scan_of_what_is_acked(monkeypatch: pytest.MonkeyPatch) -> None:
    it = StoredSegment(monkeypatch)
    read = 0

    class Tail(deque[Any]):
        def __iter__(self) -> Any:
            nonlocal read
            for entry in super().__iter__():
                read += 1
                yield entry

    for _ in range(200):
        it.append()
    machine = it.hosted.machine
    monkeypatch.setattr(machine, "tail", Tail(machine.tail))
    monkeypatch.setattr(machine, "watermark", machine.end - 1)
    it.clock.time += 30 * SECOND
    assert it.hosted.stalled_seconds() == 30.0
    assert read < 20


def test_a_write_without_an_answer_counts_before_its_timeout() -> None:
    failure = FilerFailure()
    failure.began()
    began = failure.write_began
    assert began is not None
    assert failure.lasting(began + UNANSWERED_SECONDS - 0.1) is None
    assert failure.lasting(began + UNANSWERED_SECONDS) == (began, "the write of a chunk has no answer yet")
    failure.failed("no answer in time")
    assert failure.lasting(began) == (began, "no answer in time"), "since the write began"
    failure.began()
    failure.answered()
    assert failure.lasting(began + 100) is None


def test_a_chunk_whose_write_failed_by_a_mistake_stays_in_flight(stored: StoredSegment) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a mistake")

    stored.append()
    stored.store.after_put = fail  # it was applied
    stored.flusher.flush_next()
    assert stored.hosted.flush_schedule.unconfirmed_chunk is not None
    assert stored.hosted.machine.chunk_in_flight, "no other chunk is planned for its offsets"


def test_a_broker_that_leaves_waits_for_the_seal_of_a_fenced_segment(stored: StoredSegment) -> None:
    assert stored.flusher.flush_all() == []
    with stored.hosted as machine:
        machine.fence()
    assert stored.flusher.flush_all() == [stored.hosted.name]
