"""Deliveries: each row gets its own result once, in whatever sub-batches and order the batch is sent."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq.delivery import Delivery, Receipt, TableReceipt
from smq.producing.delivery_state import DeliveryState, TableDelivery, message_delivery
from smq_core.errors import DeliveryTimeout
from support.waiting import HANG_GUARD


def delivery_state(rows: int) -> DeliveryState:
    return DeliveryState(rows, threading.Lock())


def deliver(state: DeliveryState, rows: list[int] | None, segment: str, first: int | None) -> None:
    with state.lock:
        calls = state.delivered(None if rows is None else np.array(rows), segment, first)
    for call in calls:
        call()


def fail(state: DeliveryState, rows: list[int] | None, error: BaseException) -> None:
    with state.lock:
        calls = state.failed(None if rows is None else np.array(rows), error)
    for call in calls:
        call()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_each_row_gets_the_receipt_of_its_sub_batch(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 30))
    owner = data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    state = delivery_state(rows)
    expected: dict[int, Receipt | type[BaseException]] = {}
    for sub_batch in data.draw(st.permutations(sorted(set(owner)))):
        own_rows = [row for row in range(rows) if owner[row] == sub_batch]
        assert not any(message_delivery(state, row).done() for row in own_rows)
        kind = data.draw(st.sampled_from(["offset", "unknown", "failed"]))
        if kind == "failed":
            fail(state, own_rows, DeliveryTimeout("x"))
            expected |= dict.fromkeys(own_rows, DeliveryTimeout)
        else:
            first = sub_batch * 1000 if kind == "offset" else None
            deliver(state, own_rows, f"s{sub_batch}", first)
            expected |= {
                r: Receipt(f"s{sub_batch}", None if first is None else first + i) for i, r in enumerate(own_rows)
            }
        for row in range(rows):
            assert message_delivery(state, row).done() == (row in expected)
    for row, outcome in expected.items():
        delivery = message_delivery(state, row)
        if isinstance(outcome, Receipt):
            assert delivery.result(0) == outcome
            assert delivery.exception(0) is None
        else:
            assert isinstance(delivery.exception(0), outcome)
            with pytest.raises(outcome):
                delivery.result(0)


def test_a_whole_batch_at_once() -> None:
    state = delivery_state(3)
    deliver(state, None, "s", 7)
    assert [message_delivery(state, row).result(0).offset for row in range(3)] == [7, 8, 9]
    receipt = TableDelivery([state]).result(0)
    assert receipt[2] == Receipt("s", 9)


def test_a_row_that_was_reported_as_timed_out_stays_so() -> None:
    """A callback may have run, and the message may be in the log all the same."""
    state = delivery_state(2)
    fail(state, None, DeliveryTimeout("late"))
    deliver(state, None, "s", 0)
    assert isinstance(message_delivery(state, 0).exception(0), DeliveryTimeout)
    assert state.left == 0


def test_waiting_ends_when_the_row_is_decided_or_the_time_is_up() -> None:
    state = delivery_state(2)
    with pytest.raises(TimeoutError):
        message_delivery(state, 0).result(0.01)
    found: list[Receipt] = []
    waiter = threading.Thread(target=lambda: found.append(message_delivery(state, 1).result(HANG_GUARD)))
    waiter.start()
    deliver(state, [1], "s", 5)
    waiter.join(HANG_GUARD)
    assert found == [Receipt("s", 5)]
    assert not message_delivery(state, 0).done()


def test_callbacks_run_once_and_their_errors_stay_outside() -> None:
    state = delivery_state(2)
    seen: list[Delivery[Receipt]] = []

    def broken(_: Delivery[Receipt]) -> None:
        raise ZeroDivisionError

    early, late = message_delivery(state, 0), message_delivery(state, 1)
    early.add_done_callback(broken)
    early.add_done_callback(seen.append)
    late.add_done_callback(seen.append)
    deliver(state, [0], "s", 0)
    assert seen == [early]
    deliver(state, [1], "s", 1)
    assert seen == [early, late]
    late.add_done_callback(seen.append)
    assert seen == [early, late, late]


def test_a_table_is_done_when_all_its_batches_are() -> None:
    delivery_states = [delivery_state(2), delivery_state(1)]
    delivery = TableDelivery(delivery_states)
    seen: list[Delivery[TableReceipt]] = []
    delivery.add_done_callback(seen.append)
    deliver(delivery_states[1], None, "b", 5)
    assert not delivery.done() and not seen
    deliver(delivery_states[0], [1], "b", 0)
    deliver(delivery_states[0], [0], "a", 9)
    assert delivery.done() and seen == [delivery]
    receipt = delivery.result(0)
    assert [receipt[row] for row in range(3)] == [Receipt("a", 9), Receipt("b", 0), Receipt("b", 5)]


def test_a_table_without_rows_is_done_at_once() -> None:
    assert len(TableDelivery([]).result(0)) == 0


def test_a_table_fails_with_its_first_error() -> None:
    delivery_states = [delivery_state(1), delivery_state(1)]
    deliver(delivery_states[0], None, "a", 0)
    fail(delivery_states[1], None, DeliveryTimeout("late"))
    with pytest.raises(DeliveryTimeout):
        TableDelivery(delivery_states).result(0)
