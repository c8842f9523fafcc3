"""Virtual threads wait as threads do, in virtual time and in an order that the seed determines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from smq_core.errors import Unavailable
from smq_storage.process.lock_checks import take_reports
from smq_storage.process.locks import make_lock, make_rlock
from smq_storage.thread_runtime import make_condition, make_event, make_queue, monotonic, sleep
from support.sim.engine import virtual_threads
from support.sim.engine.virtual_threads import VirtualThread
from support.sim.engine.world import SECOND, Future, Process, World

pytestmark = pytest.mark.simulation

ALL = 100 * SECOND


class Threads:
    """Threads of one process. ``seen`` has what they note, each with the virtual time in seconds."""

    def __init__(self, seed: int = 0) -> None:
        self.world = World(seed)
        self.process = Process(self.world, "host", "process")
        self.seen: list[tuple[float, Any]] = []

    def start(self, function: Callable[[], Any]) -> Future:
        return self.process.call(function)

    def note(self, what: Any) -> None:
        self.seen.append((self.world.now / SECOND, what))

    def run(self, until: int = ALL) -> list[tuple[float, Any]]:
        self.world.run_until(until)
        return self.seen


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    monkeypatch.setattr(virtual_threads, "PREEMPTED_SHARE", 0.0)
    threads = Threads()
    with threads.world.entered():
        yield threads
    threads.world.close()


def test_a_pause_takes_virtual_time(threads: Threads) -> None:
    def pause() -> None:
        sleep(2.5)
        threads.note(monotonic())

    threads.start(pause)
    assert threads.run() == [(2.5, 2.5)]


def test_the_result_or_the_error_of_a_thread_is_its_future_s(threads: Threads) -> None:
    def fail() -> None:
        raise Unavailable("no")

    good, bad = threads.start(lambda: 7), threads.start(fail)
    threads.run()
    assert good.value == 7
    assert isinstance(bad.error, Unavailable)


def test_an_error_of_a_thread_that_nobody_waits_for_fails_the_history(threads: Threads) -> None:
    VirtualThread(threads.process, lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        threads.run()


def test_a_thread_waits_for_an_answer(threads: Threads) -> None:
    answer = Future()
    threads.start(lambda: threads.note(VirtualThread.current().wait(answer)))
    threads.world.after(SECOND, lambda: answer.set("yes"))
    assert threads.run() == [(1.0, "yes")]


@pytest.mark.parametrize("make", [make_lock, make_rlock])
def test_a_lock_is_held_by_one_thread_and_goes_to_who_waits_longest(threads: Threads, make: Callable[[], Any]) -> None:
    lock = make()

    def hold(name: str) -> None:
        with lock:
            threads.note(name)
            sleep(1)

    for name in "abc":
        threads.start(lambda name=name: hold(name))
    assert threads.run() == [(0.0, "a"), (1.0, "b"), (2.0, "c")]


def test_a_lock_is_waited_for_until_a_timeout(threads: Threads) -> None:
    lock = make_lock()

    def hold() -> None:
        with lock:
            sleep(5)

    threads.start(hold)
    threads.start(lambda: threads.note(lock.acquire(timeout=2)))
    threads.start(lambda: threads.note(lock.acquire(blocking=False)))
    assert threads.run() == [(0.0, False), (2.0, False)]


def test_a_broken_order_of_locks_is_reported(threads: Threads) -> None:
    leaf, other = make_lock(), make_lock()

    def take_both() -> None:
        with leaf, other:
            threads.note("both")

    broken = threads.start(take_both)
    threads.run()
    assert "is taken after the leaf lock" in str(broken.error)
    assert "is taken after the leaf lock" in take_reports()


def test_a_condition_wakes_one_or_all_and_ends_a_wait_in_time(threads: Threads) -> None:
    lock = make_lock()
    changed = make_condition(lock)

    def wait(name: str, timeout: float | None) -> None:
        with changed:
            threads.note((name, changed.wait(timeout)))

    def notify() -> None:
        sleep(2)
        with lock:
            changed.notify()
        sleep(2)
        with lock:
            changed.notify_all()

    for name, timeout in (("late", 1.0), ("one", None), ("two", None), ("three", 9.0)):
        threads.start(lambda name=name, timeout=timeout: wait(name, timeout))
    threads.start(notify)
    assert threads.run() == [
        (1.0, ("late", False)),
        (2.0, ("one", True)),
        (4.0, ("two", True)),
        (4.0, ("three", True)),
    ]
    assert not lock.locked()


def test_a_condition_waits_for_what_holds(threads: Threads) -> None:
    changed, values = make_condition(make_rlock()), []

    def wait(timeout: float) -> None:
        with changed:
            threads.note(bool(changed.wait_for(lambda: values, timeout)))

    def change() -> None:
        for at in (2, 3):
            sleep(at)
            with changed:
                if at == 3:
                    values.append(1)
                changed.notify_all()

    threads.start(lambda: wait(4))
    threads.start(lambda: wait(9))
    threads.start(change)
    assert threads.run() == [(4.0, False), (5.0, True)]


def test_an_event_wakes_all_and_stays_set(threads: Threads) -> None:
    event = make_event()
    for timeout in (1.0, None, 9.0):
        threads.start(lambda timeout=timeout: threads.note(event.wait(timeout)))
    threads.world.after(3 * SECOND, event.set)
    assert threads.run() == [(1.0, False), (3.0, True), (3.0, True)]
    threads.start(lambda: threads.note(event.wait()))
    assert threads.run()[-1] == (100.0, True)


def test_a_queue_gives_each_item_to_one_thread(threads: Threads) -> None:
    queue = make_queue()
    for _ in range(3):
        threads.start(lambda: threads.note(queue.get()))
    for item in "ab":
        threads.world.after(SECOND, lambda item=item: queue.put(item))
    assert threads.run() == [(1.0, "a"), (1.0, "b")]


def test_threads_of_a_dead_process_never_go_on(threads: Threads) -> None:
    event = make_event()

    def wait() -> None:
        try:
            event.wait()
        finally:
            threads.note("ended")

    threads.start(wait)
    threads.start(lambda: (sleep(2), threads.note("slept")))
    threads.world.after(SECOND, threads.process.kill)
    threads.world.after(2 * SECOND, event.set)
    assert threads.run() == []


def test_threads_of_a_paused_process_go_on_when_it_does(threads: Threads) -> None:
    threads.start(lambda: (sleep(2), threads.note("slept")))
    threads.world.after(SECOND, threads.process.pause)
    threads.world.after(7 * SECOND, threads.process.resume)
    assert threads.run() == [(7.0, "slept")]


def test_a_thread_that_is_ended_with_the_history_waits_for_nothing_more(threads: Threads) -> None:
    lock, queue = make_lock(), make_queue()
    changed = make_condition(lock)

    def work() -> None:
        try:
            with changed:
                changed.wait()
        finally:
            threads.note("ends")
            queue.get()
            threads.note("goes on")

    threads.start(work)
    threads.run()
    threads.world.close()
    assert threads.seen == [(100.0, "ends")] and not threads.world.threads
    assert not take_reports()


def order_of(seed: int) -> list[tuple[float, Any]]:
    """In which order five threads take a lock twenty times each."""
    threads = Threads(seed)
    with threads.world.entered():
        lock = make_lock()

    def work(name: int) -> None:
        for _ in range(20):
            with lock:
                threads.note(name)

    for name in range(5):
        threads.start(lambda name=name: work(name))
    threads.run()
    return threads.seen


def test_the_seed_determines_who_is_preempted() -> None:
    assert order_of(1) == order_of(1) != order_of(2)
    names = [name for _, name in order_of(1)]
    assert len(names) == 100 and names != sorted(names)
