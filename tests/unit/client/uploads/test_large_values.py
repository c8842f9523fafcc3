"""A producer uploads large values. The test plays the primaries, and decides when an upload ends and how."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from smq.delivery import Delivery, Receipt
from smq.producer import MAX_LARGE_VALUE_BYTES, MIN_INLINE_BYTES, Producer
from smq.producing.batching.batch_builder import ROW_OVERHEAD_BYTES
from smq.producing.uploads import large_values
from smq.producing.uploads.large_values import PARALLEL_UPLOADS, LargeValueUploader
from smq_core.errors import (
    DeliveryTimeout,
    InvalidRequest,
    MessageTooLarge,
    ProducerFenced,
    StoreDenied,
    StoreStateUnknown,
    StoreUnavailable,
    Unavailable,
)
from smq_core.model.chunk_info import SealOutcome
from smq_core.model.entities import Column
from smq_proto.wire import outcome_to_pb
from smq_storage.catalog import paths
from smq_storage.object_store.results import ObjectExists
from smq_storage.uploads.large_values import HEADER, LargeValue, find_large_values, read_large_value
from support.in_memory.producer_sessions import DrivenSession, expire, producer_of, session
from support.in_memory.topic import PARTITIONS, TopicInMemory
from support.waiting import HANG_GUARD, eventually

BIG = b"B" * (MIN_INLINE_BYTES + 1)
KEY = b"k"


class GatedStore:
    """Uploads wait until the test opens the gate. ``errors`` are raised by the next attempts, one after the other."""

    def __init__(self, topic: TopicInMemory) -> None:
        self._topic = topic
        self.gate = threading.Event()
        self.errors: list[Exception] = []
        self.attempts: list[str] = []

    def put_new(self, path: str, data: bytes) -> str:
        self.attempts.append(path)
        assert self.gate.wait(2 * HANG_GUARD)  # so that a test fails before
        if self.errors:
            raise self.errors.pop(0)
        return self._topic.files.put_new(path, data)


class Topic(TopicInMemory):
    def __init__(self) -> None:
        super().__init__()
        self.gated = GatedStore(self)
        self.upload_timeout = 0.0

    def open_upload_store(self, timeout: float) -> Any:
        self.upload_timeout = timeout
        return self.gated


@pytest.fixture
def topic(driven_sessions: None) -> Iterator[Topic]:
    made = Topic()
    yield made
    made.gated.gate.set()


@pytest.fixture
def producer(topic: Topic) -> Iterator[Producer]:
    with producer_of(topic, max_inline_bytes=MIN_INLINE_BYTES) as made:
        yield made


def opened_stream(number: int = 0) -> DrivenSession:
    found = session(number)
    found.opened()
    return found


def wait_until_idle(producer: Producer, driven: DrivenSession, batches: int) -> None:
    """Until the queue of this session has all batches, and its thread waits for what lets the next one go."""
    sender: Any = producer._engine._machine._senders[driven.segment.name]

    def is_idle() -> bool:
        with producer._engine.lock:
            queued = len(sender.send_queue.queue) + len(sender.send_queue.in_flight)
            return queued == batches and bool(driven._wake._waiters)

    eventually(is_idle)


def time_out(producer: Producer, topic: Topic) -> Delivery[Receipt]:
    """A message that times out while its value is uploaded."""
    delivery = producer.send(BIG)
    eventually(lambda: topic.gated.attempts)

    def has_timed_out() -> bool:
        expire(producer, time.monotonic() + HANG_GUARD + 1)
        return delivery.done()

    eventually(has_timed_out)
    return delivery


def sent(topic: Topic, driven: DrivenSession) -> list[bytes | None]:
    """The values that readers get from what was sent, batch by batch; those of objects by their claim checks."""
    values: list[bytes | None] = []
    for batch, names in zip(driven.batches, driven.large_values, strict=True):
        large = find_large_values(pa.Table.from_batches([batch]))
        assert tuple(it.name for it in large.values()) == names
        for row, value in enumerate(batch.column("value").to_pylist()):
            assert row not in large or value is None
            values.append(read_large_value(topic.files, "uid", large[row], "s", 0) if row in large else value)
    return values


def test_a_large_value_waits_for_its_upload_and_keeps_its_place(producer: Producer, topic: Topic) -> None:
    deliveries = [producer.send(value, key=KEY) for value in (b"before", BIG, b"after")]
    driven = opened_stream()
    wait_until_idle(producer, driven, 3)
    assert driven.written == [0]
    eventually(lambda: len(topic.gated.attempts) == 1)
    assert driven.batches[0].column("value").to_pylist() == [b"before"]
    topic.gated.gate.set()
    eventually(lambda: driven.written == [0, 1, 2])
    assert sent(topic, driven) == [b"before", BIG, b"after"]
    assert topic.upload_timeout == HANG_GUARD, "a request may take as long as the producer's timeout"
    for sequence in range(3):
        driven.ack(sequence, sequence)
    assert [it.result(HANG_GUARD).offset for it in deliveries] == [0, 1, 2]
    assert producer._engine.in_flight == 0


def test_what_still_waits_for_others_goes_first(
    producer: Producer, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer._batcher, "_linger", 1000.0)
    producer._batcher._timers.begin_batch(time.monotonic(), 1000.0)  # after a pause, the first batch would not linger
    topic.gated.gate.set()
    producer.send(b"before", key=KEY)
    producer.send(BIG, key=KEY)
    driven = opened_stream()
    eventually(lambda: driven.written == [0, 1])
    assert sent(topic, driven) == [b"before", BIG]


def test_only_its_segment_waits(producer: Producer, topic: Topic) -> None:
    topic.set_layout([topic.segment(1, 0, 3), topic.segment(2, 3, PARTITIONS)])
    producer.send(BIG, key=KEY)
    eventually(lambda: len(DrivenSession.opened_sessions) == 1)
    first = opened_stream().segment.name
    for n in range(20):
        producer.send(b"v", key=b"%d" % n)
    eventually(lambda: len(DrivenSession.opened_sessions) == 2)
    other = opened_stream(1)
    assert other.segment.name != first
    eventually(lambda: other.written)
    assert not session(0).written


def test_its_headers_stay(producer: Producer, topic: Topic) -> None:
    topic.gated.gate.set()
    producer.send(BIG, headers={"a": b"1"}, timestamp=7)
    driven = opened_stream()
    eventually(lambda: driven.written)
    (row,) = driven.batches[0].to_pylist()
    assert [it["key"] for it in row["headers"]] == ["a", HEADER] and row["timestamp"].microsecond == 7
    assert driven.large_values == [(find_large_values(pa.Table.from_batches(driven.batches))[0].name,)]


@pytest.mark.parametrize("queued", [True, False])
def test_a_failed_upload_fails_its_delivery_and_no_other(producer: Producer, topic: Topic, queued: bool) -> None:
    topic.gated.errors = [StoreDenied("403")]
    producer._batcher._handover_lock.acquire()
    deliveries = [producer.send(value, key=KEY) for value in (b"before", BIG, b"after")]
    if not queued:  # the upload fails before the message is in its queue
        topic.gated.gate.set()
        eventually(lambda: producer._batcher._ready[1].large_value.error)
    producer._batcher._handover_lock.release()
    driven = opened_stream()
    if queued:
        wait_until_idle(producer, driven, 3)
        topic.gated.gate.set()
    eventually(lambda: driven.written == [0, 1])
    assert sent(topic, driven) == [b"before", b"after"]
    with pytest.raises(StoreDenied, match="is not in the log: give the producer a key"):
        deliveries[1].result(HANG_GUARD)
    driven.ack(0, 0)
    driven.ack(1, 1)
    assert [deliveries[n].result(HANG_GUARD).offset for n in (0, 2)] == [0, 1]
    assert producer._engine.in_flight == 0
    producer.flush()


def test_an_upload_without_a_clear_answer_is_repeated_under_its_name(
    producer: Producer, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_values, "MIN_BACKOFF_SECONDS", 0.001)
    topic.gated.errors = [
        StoreUnavailable("away"),
        Unavailable("no leader signs"),
        StoreStateUnknown("no answer"),
        ObjectExists("an earlier attempt"),
    ]
    producer.send(BIG)
    (name,) = eventually(lambda: list(topic.gated.attempts))
    topic.files.put(name, BIG)
    topic.gated.gate.set()
    driven = opened_stream()
    eventually(lambda: driven.written)
    assert topic.gated.attempts == [name] * 4
    assert sent(topic, driven) == [BIG]


def test_an_upload_is_given_up_before_the_delivery_times_out(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_values, "MIN_BACKOFF_SECONDS", 2 * HANG_GUARD)
    monkeypatch.setattr(large_values, "MAX_BACKOFF_SECONDS", 2 * HANG_GUARD)
    topic.gated.errors = [StoreUnavailable("away")]
    topic.gated.gate.set()
    with (
        producer_of(topic, max_inline_bytes=MIN_INLINE_BYTES) as producer,
        pytest.raises(StoreUnavailable, match=r"uploaded to _large_values/uid/.* is not in the log.* away"),
    ):
        producer.send(BIG).result(HANG_GUARD)


def test_an_upload_that_hangs_times_out(producer: Producer, topic: Topic) -> None:
    delivery = time_out(producer, topic)
    with pytest.raises(DeliveryTimeout, match=r"value of 65537 bytes could not be uploaded.* is not in the log"):
        delivery.result(0)
    topic.gated.gate.set()
    eventually(lambda: producer._engine.in_flight == 0)
    producer.send(b"after")
    driven = opened_stream()  # it may not have been opened before
    eventually(lambda: driven.written)
    assert sent(topic, driven) == [b"after"], "the large value is not sent any more"


def test_a_value_that_waited_until_its_deadline_is_not_uploaded(topic: Topic) -> None:
    errors: queue.SimpleQueue[object] = queue.SimpleQueue()
    uploader = LargeValueUploader(
        topic_uid="uid",
        producer="p",
        epoch=0,
        timeout=HANG_GUARD,
        open_store=lambda: topic.gated,
        on_done=lambda _, error: errors.put(error),
        has_failed=lambda: False,
    )
    uploader.start(uploader.prepare(BIG), BIG, time.monotonic() - HANG_GUARD)
    error = errors.get(timeout=HANG_GUARD)
    assert isinstance(error, StoreUnavailable) and "is not in the log" in error.message
    assert not topic.gated.attempts
    uploader.close()


def test_nothing_more_is_uploaded_for_a_producer_that_failed(
    producer: Producer, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []
    monkeypatch.setattr(producer._large_values, "_on_done", lambda pending, _: done.append(pending))
    deliveries = [producer.send(BIG) for _ in range(PARALLEL_UPLOADS + 1)]
    eventually(lambda: len(topic.gated.attempts) == PARALLEL_UPLOADS)
    uploading = [it for it in threading.enumerate() if it.name.startswith("smq-large-value")]
    assert uploading and all(it.daemon for it in uploading), "they do not keep the process alive"
    producer._engine.fail(ProducerFenced("another one"))
    topic.gated.errors = [StoreUnavailable("away")] * PARALLEL_UPLOADS
    topic.gated.gate.set()
    eventually(lambda: len(done) == len(deliveries))
    assert len(topic.gated.attempts) == PARALLEL_UPLOADS
    for delivery in deliveries:
        with pytest.raises(ProducerFenced):
            delivery.result(HANG_GUARD)


def test_a_message_that_timed_out_takes_its_budget_until_its_upload_ends(producer: Producer, topic: Topic) -> None:
    time_out(producer, topic)
    assert producer._engine.in_flight > len(BIG)
    topic.gated.gate.set()
    eventually(lambda: producer._engine.in_flight == 0)


def test_what_waits_behind_a_message_that_times_out_is_sent(producer: Producer, topic: Topic) -> None:
    producer.send(BIG, key=KEY)
    producer.send(b"after", key=KEY)
    driven = opened_stream()
    wait_until_idle(producer, driven, 2)
    queued: Any = producer._engine._machine._senders[driven.segment.name].send_queue.queue
    large, after = queued
    large.created_at = after.created_at - 10
    expire(producer, after.created_at + HANG_GUARD - 5)
    eventually(lambda: driven.written == [0])
    assert sent(topic, driven) == [b"after"]


def test_the_bytes_of_uploads_are_in_flight(producer: Producer, topic: Topic) -> None:
    assert producer.would_block(BIG) and not producer.would_block(b"small", b"key", {})
    first = producer.send(b"1" * 700_000)
    waiting = threading.Thread(target=producer.send, args=(b"2" * 700_000,))
    waiting.start()
    driven = opened_stream()
    assert 700_000 < producer._engine.in_flight < 710_000
    assert not driven.written and len(topic.gated.attempts) <= 1
    topic.gated.gate.set()
    eventually(lambda: driven.written == [0])
    assert waiting.is_alive()
    driven.ack(0, 0)
    first.result(HANG_GUARD)
    waiting.join(HANG_GUARD)
    eventually(lambda: driven.written == [0, 1])


def test_key_and_headers_count_for_whether_a_send_would_block(topic: Topic) -> None:
    value = b"v" * MIN_INLINE_BYTES
    with producer_of(topic, max_inline_bytes=len(value) + ROW_OVERHEAD_BYTES + 9) as producer:
        assert not producer.would_block(value) and not producer.would_block(value, b"k" * 9)
        assert producer.would_block(value, b"k" * 10)
        assert producer.would_block(value, None, {"a": b"123456789"})


def test_a_seal_during_the_upload_moves_the_message_to_the_successor(producer: Producer, topic: Topic) -> None:
    delivery = producer.send(BIG, key=KEY)
    after = producer.send(b"after", key=KEY)
    old = opened_stream()
    eventually(lambda: producer._engine._machine.send_queues.send_queues[old.segment.name].queue)
    new = topic.segment(1, predecessors=(old.segment.name,))
    topic.seal(old.segment, 0, new)
    old.reply(sealed=outcome_to_pb(SealOutcome(segment=old.segment.name, end=0, producers={}), successors=[new]))
    topic.gated.gate.set()
    driven = opened_stream(1)
    eventually(lambda: driven.written == [0, 1])
    assert sent(topic, driven) == [BIG, b"after"] and not old.written
    driven.ack(0, 0)
    driven.ack(1, 1)
    assert (delivery.result(HANG_GUARD).segment, after.result(HANG_GUARD).offset) == (new.name, 1)


def test_a_repeat_names_its_object_again(producer: Producer, topic: Topic) -> None:
    topic.gated.gate.set()
    producer.send(BIG)
    first = opened_stream()
    eventually(lambda: first.written)
    first.break_off()
    second = opened_stream(1)
    eventually(lambda: second.written == [0])
    assert second.large_values == first.large_values and len(topic.gated.attempts) == 1


def test_what_cannot_be_a_large_value(producer: Producer, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = producer._max_message_bytes
    with pytest.raises(MessageTooLarge):
        producer.send(BIG, key=b"k" * limit)
    with pytest.raises(MessageTooLarge):
        producer.send(None, key=b"k" * (limit + 1))
    monkeypatch.setattr("smq.producer.MAX_LARGE_VALUE_BYTES", len(BIG) - 1)
    with pytest.raises(MessageTooLarge):
        producer.send(BIG)
    assert producer._engine.in_flight == 0 and MAX_LARGE_VALUE_BYTES == 1 << 30
    producer.send(b"small", key=b"k" * MIN_INLINE_BYTES)
    driven = opened_stream()
    eventually(lambda: driven.written)
    assert driven.large_values == [()]


def test_the_reserved_header_is_refused(producer: Producer) -> None:
    check = LargeValue.of("p-0-x.value", b"").header()
    with pytest.raises(InvalidRequest, match=r"smq\.value.*reserved"):
        producer.send(b"v", headers=[check])
    table = pa.table({"value": [b"v"], "headers": [[{"key": "smq.value", "value": b"x"}]]})
    for by_reference in (False, True):
        with pytest.raises(InvalidRequest, match=r"smq\.value.*reserved"):
            producer.write(table, by_reference=by_reference)
    assert not DrivenSession.opened_sessions


def test_a_topic_with_a_schema_has_no_large_values(topic: Topic) -> None:
    spec = replace(topic.topic.spec, schema=(Column("text", "string"),))
    topic.topic = replace(topic.topic, spec=spec)
    topic.snapshot = replace(topic.snapshot, topic=topic.topic)
    with producer_of(topic, max_inline_bytes=MIN_INLINE_BYTES) as producer:
        producer.send({"text": "x" * len(BIG)})
        driven = opened_stream()
        eventually(lambda: driven.written)
        assert driven.large_values == [()]
        with pytest.raises(MessageTooLarge):
            producer.send({"text": "x" * producer._max_message_bytes})


def test_the_inline_limit_must_be_worth_an_object(topic: Topic) -> None:
    with pytest.raises(InvalidRequest, match="max_inline_bytes"), producer_of(topic, max_inline_bytes=1):
        pass


def test_a_closed_producer_takes_none(producer: Producer, topic: Topic) -> None:
    producer.close()
    with pytest.raises(InvalidRequest, match="closed"):
        producer.send(BIG)
    assert producer._engine.in_flight == 0 and not topic.gated.attempts


def test_values_have_paths_of_their_own(producer: Producer, topic: Topic) -> None:
    topic.gated.gate.set()
    for value in (BIG, BIG):
        producer.send(value)
    eventually(lambda: len(set(topic.gated.attempts)) == 2)
    assert all(path.startswith(paths.large_values_folder("uid")) for path in topic.gated.attempts)
