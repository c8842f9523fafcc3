"""Timers: every call is made, also if it is planned while the thread is about to wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from smq.producing.runtime.timers import Timers
from support.waiting import HANG_GUARD, eventually


@pytest.fixture
def timers() -> Iterator[Timers]:
    made = Timers()
    yield made
    made.close()


def test_an_earlier_call_ends_the_wait_for_a_later_one(timers: Timers) -> None:
    called: list[str] = []
    timers.call_later(HANG_GUARD * 2, lambda: called.append("late"))
    eventually(lambda: timers._wakes_at > 0)
    timers.call_later(0.001, lambda: called.append("early"))
    eventually(lambda: called == ["early"])


def test_calls_that_are_due_together_come_in_order_and_what_they_put_off_comes_last(timers: Timers) -> None:
    called: list[int] = []
    done = threading.Event()

    def first() -> None:
        assert timers.call_after(lambda: called.append(9))
        called.append(1)
        for number in (2, 3):
            timers.call_at(0.0, lambda number=number: called.append(number))  # type: ignore[misc]
        timers.call_at(0.0, done.set)

    timers.call_at(0.0, first)
    assert done.wait(HANG_GUARD)
    assert called == [1, 9, 2, 3]
    assert not timers.call_after(done.set), "this is another thread"


def test_a_call_that_fails_ends_nothing(timers: Timers) -> None:
    called = threading.Event()
    timers.call_at(0.0, lambda: 1 // 0)
    timers.call_later(0.001, called.set)
    assert called.wait(HANG_GUARD)


def test_no_call_is_missed_whatever_the_threads_do_in_between(timers: Timers) -> None:
    """Deadlines pass while the thread is about to wait for them, which must not become a wait without an end."""
    rounds, workers = 3000, 3
    left = threading.Semaphore(0)

    def plan(number: int) -> None:
        for round_ in range(rounds):
            called = threading.Event()
            timers.call_later((round_ * (number + 1) % 7) * 0.0001, called.set)
            if not called.wait(HANG_GUARD):
                return
        left.release()

    threads = [threading.Thread(target=plan, args=(number,), daemon=True) for number in range(workers)]
    for thread in threads:
        thread.start()
    for _ in range(workers):
        assert left.acquire(timeout=HANG_GUARD)


def test_a_batch_waits_for_the_next_tick_unless_the_client_was_quiet_for_so_long(timers: Timers) -> None:
    assert timers.begin_batch(1000.0, 0.25) == 1000.0
    assert timers.begin_batch(1000.2, 0.25) == timers.next_tick(1000.2, 0.25)
    assert timers.begin_batch(1000.4, 0.25) == timers.next_tick(1000.4, 0.25), "the one before was 0.2 s earlier"
    assert timers.begin_batch(1000.65, 0.25) == 1000.65


def test_nothing_is_called_after_close() -> None:
    timers = Timers()
    called: list[int] = []
    timers.call_later(0.001, lambda: called.append(1))
    eventually(lambda: called == [1])
    timers.call_later(HANG_GUARD * 2, lambda: called.append(2))
    timers.close()
    timers.call_at(0.0, lambda: called.append(3))
    timers.close()
    assert called == [1]
