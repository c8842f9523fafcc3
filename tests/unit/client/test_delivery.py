"""Deliveries: whatever the pieces of a batch and their order, each row is told its own fate, once."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smq.delivery import Delivery, Fate, MessageDelivery, Receipt, TableDelivery, TableReceipt
from smq_core.errors import DeliveryTimeout


def fate(rows: int) -> Fate:
    return Fate(rows, threading.Lock())


def settle(it: Fate, rows: list[int] | None, segment: str, first: int | None) -> None:
    with it.lock:
        calls = it.delivered(None if rows is None else np.array(rows), segment, first)
    for call in calls:
        call()


def fail(it: Fate, rows: list[int] | None, error: BaseException) -> None:
    with it.lock:
        calls = it.failed(None if rows is None else np.array(rows), error)
    for call in calls:
        call()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_each_row_gets_the_receipt_of_its_piece(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 30))
    owner = data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    it = fate(rows)
    expected: dict[int, Receipt | type[BaseException]] = {}
    for piece in data.draw(st.permutations(sorted(set(owner)))):
        mine = [row for row in range(rows) if owner[row] == piece]
        assert not any(MessageDelivery(it, row).done() for row in mine)
        kind = data.draw(st.sampled_from(["offset", "unknown", "failed"]))
        if kind == "failed":
            fail(it, mine, DeliveryTimeout("x"))
            expected |= dict.fromkeys(mine, DeliveryTimeout)
        else:
            first = piece * 1000 if kind == "offset" else None
            settle(it, mine, f"s{piece}", first)
            expected |= {r: Receipt(f"s{piece}", None if first is None else first + i) for i, r in enumerate(mine)}
        for row in range(rows):
            assert MessageDelivery(it, row).done() == (row in expected)
    for row, told in expected.items():
        delivery = MessageDelivery(it, row)
        if isinstance(told, Receipt):
            assert delivery.result(0) == told
            assert delivery.exception(0) is None
        else:
            assert isinstance(delivery.exception(0), told)
            with pytest.raises(told):
                delivery.result(0)


def test_a_whole_batch_at_once() -> None:
    it = fate(3)
    settle(it, None, "s", 7)
    assert [MessageDelivery(it, row).result(0).offset for row in range(3)] == [7, 8, 9]
    receipt = TableDelivery([it]).result(0)
    assert receipt[2] == Receipt("s", 9)


def test_a_row_that_was_reported_as_timed_out_stays_so() -> None:
    """Somebody may have been told; the message may be in the log all the same."""
    it = fate(2)
    fail(it, None, DeliveryTimeout("late"))
    settle(it, None, "s", 0)
    assert isinstance(MessageDelivery(it, 0).exception(0), DeliveryTimeout)
    assert it.left == 0


def test_waiting_ends_when_the_row_is_settled_or_the_time_is_up() -> None:
    it = fate(2)
    with pytest.raises(TimeoutError):
        MessageDelivery(it, 0).result(0.01)
    found: list[Receipt] = []
    waiter = threading.Thread(target=lambda: found.append(MessageDelivery(it, 1).result(10)))
    waiter.start()
    settle(it, [1], "s", 5)
    waiter.join(10)
    assert found == [Receipt("s", 5)]
    assert not MessageDelivery(it, 0).done()


def test_callbacks_run_once_and_their_errors_stay_outside() -> None:
    it = fate(2)
    seen: list[Delivery[Receipt]] = []

    def broken(_: Delivery[Receipt]) -> None:
        raise ZeroDivisionError

    early, late = MessageDelivery(it, 0), MessageDelivery(it, 1)
    early.add_done_callback(broken)
    early.add_done_callback(seen.append)
    late.add_done_callback(seen.append)
    settle(it, [0], "s", 0)
    assert seen == [early]
    settle(it, [1], "s", 1)
    assert seen == [early, late]
    late.add_done_callback(seen.append)
    assert seen == [early, late, late]


def test_a_table_is_done_when_all_its_batches_are() -> None:
    fates = [fate(2), fate(1)]
    delivery = TableDelivery(fates)
    seen: list[Delivery[TableReceipt]] = []
    delivery.add_done_callback(seen.append)
    settle(fates[1], None, "b", 5)
    assert not delivery.done() and not seen
    settle(fates[0], [1], "b", 0)
    settle(fates[0], [0], "a", 9)
    assert delivery.done() and seen == [delivery]
    receipt = delivery.result(0)
    assert [receipt[row] for row in range(3)] == [Receipt("a", 9), Receipt("b", 0), Receipt("b", 5)]


def test_a_table_without_rows_is_done_at_once() -> None:
    assert len(TableDelivery([]).result(0)) == 0


def test_a_table_fails_with_its_first_error() -> None:
    fates = [fate(1), fate(1)]
    settle(fates[0], None, "a", 0)
    fail(fates[1], None, DeliveryTimeout("late"))
    with pytest.raises(DeliveryTimeout):
        TableDelivery(fates).result(0)
