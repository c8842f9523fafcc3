"""Many messages by one call: the same batches as one by one, one receipt, and nothing sent if one is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smq.delivery import Receipt
from smq.producer import BATCH_OVERHEAD_BYTES, Producer
from smq.producing.batching.batch_builder import ROW_OVERHEAD_BYTES
from smq.producing.batching.message_group import MessageGroup
from smq.producing.encoding.batch_encoder import BatchEncoder
from smq_core.errors import DeliveryTimeout, InvalidRequest, MessageTooLarge, SchemaMismatch
from smq_core.model.entities import Column, Topic, TopicSpec
from support.in_memory.acking_engine import AckingEngine, engine, sent_batch

BATCH_BYTES = 1000


@pytest.fixture
def make(open_producer: Callable[..., Producer]) -> Callable[[], Producer]:
    return lambda: open_producer(3600.0, batch_bytes=BATCH_BYTES, timeout=60.0)


@pytest.fixture
def producer(make: Callable[[], Producer]) -> Producer:
    return make()


def answer_all(producer: Producer) -> AckingEngine:
    """Submits what waits, and acks everything."""
    with producer._batcher._handover_lock:
        producer._batcher._submit_ready(include_current=True)
    for sub_batch in engine(producer).submitted:
        if sub_batch.delivery_state.left:
            engine(producer).answer(sub_batch)
    return engine(producer)


def batches(producer: Producer) -> Iterator[list[tuple[bytes, bytes | None]]]:
    for sub_batch in answer_all(producer).submitted:
        columns = sent_batch(sub_batch).to_pydict()
        yield list(zip(columns["value"], columns["key"], strict=True))


MESSAGES = st.lists(st.tuples(st.integers(0, 2 * BATCH_BYTES), st.none() | st.binary(max_size=4)), max_size=40)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(MESSAGES, max_size=4))
def test_the_batches_are_those_of_single_messages(
    make: Callable[[], Producer], groups: list[list[tuple[int, bytes | None]]]
) -> None:
    by_many, one_by_one = make(), make()
    for group in groups:
        by_many.send_many([b"v" * size for size, _ in group], [key for _, key in group])
        for size, key in group:
            one_by_one.send(b"v" * size, key=key)
    assert list(batches(by_many)) == list(batches(one_by_one))


def test_the_receipt_has_the_place_of_each_message(producer: Producer) -> None:
    producer.send(b"before")
    first = producer.send_many([b"%d" % number for number in range(100)])
    second = producer.send_many([b"after"], [b"key"])
    assert not first.done() and not second.done()
    answer_all(producer)
    assert len(engine(producer).submitted) > 2
    assert [first.result()[row] for row in range(100)] == [Receipt("segment", 1 + row) for row in range(100)]
    assert len(first.result()) == 100 and second.result()[0] == Receipt("segment", 101)


def test_no_messages_have_a_receipt_at_once(producer: Producer) -> None:
    assert len(producer.send_many([]).result()) == 0


def test_only_the_errors_of_its_own_messages_count(producer: Producer) -> None:
    """The batch that two calls share has failed rows of the first one only."""
    first = producer.send_many([b"a", b"b"])
    second = producer.send_many([b"c"])
    with producer._batcher._handover_lock:
        producer._batcher._submit_ready(include_current=True)
    (sub_batch,) = engine(producer).submitted
    state = sub_batch.delivery_state
    with state.lock:
        state.failed(np.array([1]), DeliveryTimeout("late"))
        state.delivered(np.array([0, 2]), "segment", 7)
    with pytest.raises(DeliveryTimeout, match="late"):
        first.result()
    assert second.exception() is None and second.result()[0] == Receipt("segment", 8)
    producer.flush()


@pytest.mark.parametrize(
    ("values", "keys", "message", "note"),
    [
        ([b"a", "b"], None, "must be bytes, not str", "message 1 of 2"),
        ([b"a", b"b"], [b"k"], "2 values, but 1 keys", None),
        ([b"a"], ["k"], "a key must be bytes", "message 0 of 1"),
        (b"abc", None, "use send for one", None),
    ],
)
def test_a_mistake_sends_nothing(
    producer: Producer, values: list[bytes], keys: list[bytes] | None, message: str, note: str | None
) -> None:
    with pytest.raises(InvalidRequest, match=message) as raised:
        producer.send_many(values, keys)
    assert note is None or note in raised.value.__notes__[0]
    assert not answer_all(producer).submitted


def test_a_message_that_is_too_large_sends_nothing(producer: Producer) -> None:
    key = b"k" * (engine(producer).max_batch_bytes - BATCH_OVERHEAD_BYTES - ROW_OVERHEAD_BYTES)
    with pytest.raises(MessageTooLarge):
        producer.send_many([b"small", b"v"], [None, key])
    assert not answer_all(producer).submitted


def test_a_closed_producer_takes_none(producer: Producer) -> None:
    producer.close()
    with pytest.raises(InvalidRequest, match="closed"):
        producer.send_many([b"late"])


def test_an_error_names_the_column_the_value_and_the_row() -> None:
    columns = (Column("id", "int32"), Column("name", "string", nullable=True))
    encoder = BatchEncoder(Topic("default/t", "uid", TopicSpec(partitions=8, schema=columns)))

    with pytest.raises(SchemaMismatch, match=r"^default/t: column id, row 2: 'x' \(string\) does not fit int32: .*"):
        MessageGroup.of([{"id": 0}, {"id": 1}, {"id": "x"}], None, encoder)
