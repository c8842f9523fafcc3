"""An error is raised once: neither flush nor close raises what the program has got from a delivery."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from smq.closing import close_all
from smq.producer import Producer
from smq.producing import unresolved_batches
from smq_core.errors import DeliveryTimeout
from support.in_memory.acking_engine import engine


@pytest.fixture
def producer(open_producer: Callable[..., Producer]) -> Producer:
    return open_producer(3600.0, timeout=60.0)


def submit(producer: Producer) -> None:
    with producer._batcher._handover_lock:
        producer._batcher._submit_ready(include_current=True)


def fail(producer: Producer, *rows: int) -> None:
    """These rows of the last batch fail, each with its own error."""
    submit(producer)
    state = engine(producer).submitted[-1].delivery_state
    with state.lock:
        for row in rows:
            state.failed(np.array([row]), DeliveryTimeout(f"row {row}"))


def test_what_a_delivery_has_raised_is_not_raised_again(producer: Producer) -> None:
    delivery = producer.send(b"a")
    fail(producer, 0)
    with pytest.raises(DeliveryTimeout, match="row 0"):
        delivery.result()
    producer.flush()
    producer.close()


def test_the_errors_of_other_messages_of_the_batch_are_raised(producer: Producer) -> None:
    first, second, _ = (producer.send(value) for value in (b"a", b"b", b"c"))
    fail(producer, 0, 1, 2)
    assert "row 0" in str(first.exception()) and "failed" in repr(second)
    with pytest.raises(DeliveryTimeout, match="row 1"):
        producer.flush()
    producer.flush()


def test_a_call_with_many_messages_has_raised_the_errors_of_all_of_them(producer: Producer) -> None:
    many, single = producer.send_many([b"a", b"b"]), producer.send(b"c")
    fail(producer, 0, 1, 2)
    assert "row 0" in str(many.exception())
    with pytest.raises(DeliveryTimeout, match="row 2"):
        producer.flush()
    assert "row 2" in str(single.exception())


def test_an_error_is_raised_although_thousands_came_after_it(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unresolved_batches, "MAX_FAILED_BATCHES", 3)
    for number in range(9):
        delivery = producer.send(b"x")
        fail(producer, 0)
        assert number == 1 or delivery.exception() is not None
    assert len(producer._batcher._unresolved._failed) <= 3
    with pytest.raises(DeliveryTimeout):
        producer.close()


def test_the_error_of_the_block_goes_on_and_names_those_of_the_close(producer: Producer) -> None:
    with pytest.raises(ValueError, match="of the program") as raised, producer:
        producer.send(b"a")
        fail(producer, 0)
        raise ValueError("of the program")
    assert "row 0" in raised.value.__notes__[0]
    assert producer.closed


class FakeClosable:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.closed = False

    def close(self) -> None:
        self.closed = True
        if self.error is not None:
            raise self.error


def test_everything_is_closed_although_the_first_close_fails() -> None:
    """Else the messages of the other producers would be lost without an error."""
    opened = [FakeClosable(DeliveryTimeout("first")), FakeClosable(), FakeClosable(ValueError("third"))]
    with pytest.raises(DeliveryTimeout, match="first") as raised:
        close_all(opened)
    assert all(it.closed for it in opened) and "third" in raised.value.__notes__[0]
