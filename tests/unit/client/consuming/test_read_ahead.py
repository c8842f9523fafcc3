"""Read-ahead: it keeps each reader's order, respects the budget, and starves no reader."""

from __future__ import annotations

import threading

import pyarrow as pa

from smq.consuming.fetching.prefetch_buffer import FetchedRows, PrefetchBuffer, SegmentEnd
from support.waiting import HANG_GUARD, eventually


class FakeReader:
    segment = "s"


def rows(first: int, count: int, nbytes: int = 10) -> FetchedRows:
    return FetchedRows(pa.table({"n": range(first, first + count)}), first, nbytes)


def test_small_ones_are_handed_out_together_up_to_a_size_and_the_end_comes_last() -> None:
    buffer: PrefetchBuffer[FakeReader] = PrefetchBuffer(1000)
    reader = FakeReader()
    buffer.open(reader)
    for first in (0, 2, 4):
        assert buffer.put(reader, rows(first, 2))
    buffer.put(reader, SegmentEnd(6))
    found = []
    while (one := buffer.take(20)) is not None:
        found.append(one[1])
    assert [(i.first, i.end) for i in found if isinstance(i, FetchedRows)] == [(0, 4), (4, 6)]
    assert found[0].table.column("n").to_pylist() == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert isinstance(found[-1], SegmentEnd)


def test_readers_take_turns() -> None:
    buffer: PrefetchBuffer[FakeReader] = PrefetchBuffer(1000)
    one, two = FakeReader(), FakeReader()
    for reader in (one, two):
        buffer.open(reader)
        for first in (0, 1):
            buffer.put(reader, rows(first, 1))
    assert [buffer.take(10)[0] for _ in range(4)] == [one, two, one, two]  # type: ignore[index]


def test_a_full_budget_makes_a_reader_wait_but_never_one_with_nothing_in() -> None:
    buffer: PrefetchBuffer[FakeReader] = PrefetchBuffer(15)
    one, two = FakeReader(), FakeReader()
    buffer.open(one)
    buffer.open(two)
    buffer.put(one, rows(0, 1))
    buffer.put(one, rows(1, 1))
    waiting = threading.Thread(target=lambda: buffer.put(one, rows(2, 1)), daemon=True)
    waiting.start()
    assert buffer.put(two, rows(0, 1)), "the other one is not held up"
    waiting.join(0.05)
    assert waiting.is_alive()
    assert buffer.take(10)
    assert buffer.take(10)
    assert buffer.take(10)
    eventually(lambda: not waiting.is_alive())


def test_who_waits_for_messages_is_woken_by_the_first_ones_and_by_those_of_a_resumed_reader() -> None:
    buffer: PrefetchBuffer[FakeReader] = PrefetchBuffer(1000)
    readers = [FakeReader(), FakeReader()]
    taken: list[FakeReader] = []

    def take_three() -> None:
        while len(taken) < 3:
            with buffer.changed:
                found = buffer.take(10, 1)
                if found is None:
                    buffer.changed.wait()
                    continue
            taken.append(found[0])

    for reader in readers:
        buffer.open(reader)
    buffer.pause(readers[0])
    waiting = threading.Thread(target=take_three, daemon=True)
    waiting.start()
    buffer.put(readers[0], rows(0, 1))  # it is paused
    buffer.put(readers[1], rows(0, 1))
    eventually(lambda: len(taken) == 1)
    buffer.resume(readers[0])
    eventually(lambda: len(taken) == 2)
    buffer.put(readers[1], rows(1, 1))
    waiting.join(HANG_GUARD)
    assert taken == [readers[1], readers[0], readers[1]]


def test_what_was_dropped_is_gone_and_frees_whoever_waits() -> None:
    buffer: PrefetchBuffer[FakeReader] = PrefetchBuffer(5)
    reader = FakeReader()
    buffer.open(reader)
    buffer.put(reader, rows(0, 1))
    accepted: list[bool] = []
    waiting = threading.Thread(target=lambda: accepted.append(buffer.put(reader, rows(1, 1))), daemon=True)
    waiting.start()
    buffer.drop(reader)
    waiting.join(HANG_GUARD)
    assert accepted == [False]
    assert buffer.take(10) is None
    again = FakeReader()
    buffer.open(again)
    assert buffer.put(again, rows(0, 1)), "the budget is free again"
