"""What the locks report while tests run, and that they are Python's own otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from enum import IntEnum

import pytest

from smq_storage.process.lock_checks import take_reports
from smq_storage.process.locks import CHECKS_VARIABLE, make_lock, make_rlock, requires_lock, requires_no_lock
from support.waiting import HANG_GUARD, eventually


class Place(IntEnum):
    FIRST = 1
    SECOND = 2


class OtherPlace(IntEnum):
    ZEROTH = 0


class Counter:
    def __init__(self) -> None:
        self.lock = make_lock()
        self.changed = threading.Condition(self.lock)
        self.count = 0

    @requires_lock("lock")
    def add(self, number: int) -> int:
        """Adds."""
        self.count += number
        return self.count

    @property
    @requires_lock("changed")
    def is_empty(self) -> bool:
        return not self.count


@requires_no_lock
def call_the_program() -> str:
    return "called"


@pytest.fixture(autouse=True)
def lock_reports() -> Iterator[None]:
    """In place of the one that fails tests with reports."""
    yield
    take_reports()


def reported() -> str:
    """The first line of the only report."""
    lines = [line for line in take_reports().splitlines() if "in thread" in line]
    assert len(lines) == 1
    return lines[0]


def test_a_later_lock_is_not_held_when_an_earlier_one_is_taken() -> None:
    first, second = make_lock(Place.FIRST), make_rlock(Place.SECOND)
    with first, second, second:
        pass
    assert not take_reports()
    with second, pytest.raises(AssertionError, match=r"Place\.FIRST is taken after Place\.SECOND"):
        first.acquire()
    assert reported().startswith("Place.FIRST is taken after Place.SECOND, in thread MainThread of process")
    with first:
        pass


def test_two_locks_of_one_place_are_not_held_together() -> None:
    one, other = make_lock(Place.FIRST), make_lock(Place.FIRST)
    with one, pytest.raises(AssertionError, match=r"Place\.FIRST is taken after Place\.FIRST"):
        other.acquire()


def test_orders_of_two_processes_are_not_compared() -> None:
    with make_lock(Place.FIRST), make_lock(OtherPlace.ZEROTH):
        pass
    assert not take_reports()


def test_nothing_is_taken_with_a_leaf_lock() -> None:
    leaf, place, other = make_lock(), make_lock(Place.SECOND), make_lock(OtherPlace.ZEROTH)
    with place, other, leaf:
        pass
    for lock in (place, make_lock()):
        with leaf, pytest.raises(AssertionError, match=r"is taken after the leaf lock of test_locks.py:\d+"):
            lock.acquire()


def test_who_does_not_wait_for_a_lock_may_take_it_out_of_order() -> None:
    first, second = make_lock(Place.FIRST), make_lock(Place.SECOND)
    with second:
        assert first.acquire(blocking=False)
        assert not first.acquire(blocking=False)
        first.release()
    assert not take_reports()


def test_a_thread_does_not_wait_for_itself() -> None:
    lock = make_lock()
    with lock:
        assert not lock.acquire(timeout=0.001)
        assert not take_reports()
        with pytest.raises(AssertionError, match="is taken by the thread that holds it"):
            lock.acquire()


def test_only_the_holder_releases_a_lock() -> None:
    with pytest.raises(AssertionError, match="is released by a thread that does not hold it"):
        make_lock().release()


def test_a_function_that_requires_a_lock_is_called_by_its_holder() -> None:
    counter = Counter()
    with counter.lock:
        assert counter.add(2) == 2
        assert not counter.is_empty
    assert (counter.add.__name__, counter.add.__doc__) == ("add", "Adds.")
    with pytest.raises(AssertionError, match=r"Counter\.add is called without lock"):
        counter.add(1)
    with pytest.raises(AssertionError, match=r"Counter\.is_empty is called without changed"):
        assert counter.is_empty
    assert counter.count == 2


def test_it_does_not_suffice_that_another_thread_holds_the_lock() -> None:
    counter, done = Counter(), threading.Event()

    def hold() -> None:
        with counter.lock:
            done.wait(HANG_GUARD)

    holder = threading.Thread(target=hold)
    holder.start()
    eventually(counter.lock.locked, "the other thread holds the lock")
    with pytest.raises(AssertionError, match="is called without lock"):
        counter.add(1)
    done.set()
    holder.join(HANG_GUARD)


@pytest.mark.parametrize("lock", [threading.Lock(), threading.RLock()])
def test_the_lock_of_a_test_may_be_one_of_python(lock: threading.Lock) -> None:
    counter = Counter()
    counter.lock = lock
    with lock:
        assert counter.add(1) == 1
    with pytest.raises(AssertionError, match="is called without lock"):
        counter.add(1)


def test_code_of_the_program_is_called_without_a_lock() -> None:
    assert call_the_program() == "called"
    with make_lock(), pytest.raises(AssertionError, match="call_the_program is called with the leaf lock of"):
        call_the_program()


@pytest.mark.parametrize("make", [make_lock, make_rlock])
def test_a_condition_frees_its_lock_while_a_thread_waits(make: type[object]) -> None:
    lock = make_rlock(Place.FIRST) if make is make_rlock else make_lock(Place.FIRST)
    changed, ready = threading.Condition(lock), []

    def wait() -> None:
        with changed:
            assert changed.wait_for(lambda: ready, HANG_GUARD)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with changed:
        ready.append(True)
        changed.notify_all()
    waiting.join(HANG_GUARD)
    assert not waiting.is_alive() and not lock.locked() and not take_reports()


def test_a_thread_waits_with_no_other_lock() -> None:
    changed = threading.Condition(make_lock(Place.SECOND))
    with (
        make_lock(Place.FIRST),
        changed,
        pytest.raises(AssertionError, match=r"waits with Place\.SECOND while it holds"),
    ):
        changed.wait(0.001)


def test_processes_that_tests_start_report_too() -> None:
    broken = "from smq_storage.process.locks import make_lock\nwith make_lock(), make_lock(): pass"
    done = subprocess.run([sys.executable, "-c", broken], capture_output=True, check=False)
    assert done.returncode == 1
    assert "is taken after the leaf lock of <string>" in reported()


def test_without_the_variable_nothing_is_checked() -> None:
    environment = {name: value for name, value in os.environ.items() if name != CHECKS_VARIABLE}
    code = """
import sys, threading
from smq_storage.process import locks
function = lambda: None
assert type(locks.make_lock()) is type(threading.Lock())
assert type(locks.make_rlock()) is type(threading.RLock())
assert locks.requires_lock("lock")(function) is function
assert locks.requires_no_lock(function) is function
assert "smq_storage.process.lock_checks" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
