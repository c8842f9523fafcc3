"""What is read ahead: in order for each reader, within the budget, and none is starved."""

from __future__ import annotations

import threading

import pyarrow as pa

from smq.inbox import Ended, Inbox, Rows
from support.waiting import eventually


class Reader:
    segment = "s"


def rows(first: int, count: int, nbytes: int = 10) -> Rows:
    return Rows(pa.table({"n": range(first, first + count)}), first, nbytes)


def test_small_ones_are_handed_out_together_up_to_a_size_and_the_end_comes_last() -> None:
    inbox: Inbox[Reader] = Inbox(1000)
    reader = Reader()
    inbox.open(reader)
    for first in (0, 2, 4):
        assert inbox.put(reader, rows(first, 2))
    inbox.put(reader, Ended(6))
    found = []
    while (one := inbox.take(20)) is not None:
        found.append(one[1])
    assert [(i.first, i.end) for i in found if isinstance(i, Rows)] == [(0, 4), (4, 6)]
    assert found[0].table.column("n").to_pylist() == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert isinstance(found[-1], Ended)


def test_readers_take_turns() -> None:
    inbox: Inbox[Reader] = Inbox(1000)
    one, two = Reader(), Reader()
    for reader in (one, two):
        inbox.open(reader)
        for first in (0, 1):
            inbox.put(reader, rows(first, 1))
    assert [inbox.take(10)[0] for _ in range(4)] == [one, two, one, two]  # type: ignore[index]


def test_a_full_budget_makes_a_reader_wait_but_never_one_with_nothing_in() -> None:
    inbox: Inbox[Reader] = Inbox(15)
    one, two = Reader(), Reader()
    inbox.open(one)
    inbox.open(two)
    inbox.put(one, rows(0, 1))
    inbox.put(one, rows(1, 1))
    waiting = threading.Thread(target=lambda: inbox.put(one, rows(2, 1)))
    waiting.start()
    assert inbox.put(two, rows(0, 1)), "the other one is not held up"
    waiting.join(0.05)
    assert waiting.is_alive()
    assert inbox.take(10)
    assert inbox.take(10)
    assert inbox.take(10)
    eventually(lambda: not waiting.is_alive())


def test_what_was_dropped_is_gone_and_frees_whoever_waits() -> None:
    inbox: Inbox[Reader] = Inbox(5)
    reader = Reader()
    inbox.open(reader)
    inbox.put(reader, rows(0, 1))
    told: list[bool] = []
    waiting = threading.Thread(target=lambda: told.append(inbox.put(reader, rows(1, 1))))
    waiting.start()
    inbox.drop(reader)
    waiting.join(5)
    assert told == [False]
    assert inbox.take(10) is None
    again = Reader()
    inbox.open(again)
    assert inbox.put(again, rows(0, 1)), "the budget is free again"
