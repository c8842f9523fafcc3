"""Pins of DataFrames live until they are released, their session has stopped, or they are as old as they may become."""

from __future__ import annotations

import itertools

import pytest

from pyspark_smq.table.pins import KeptPin, PinKeeper
from smq_core.model.entities import SECOND
from smq_storage.catalog.stored_pins import delete_pin, list_pins, read_pin
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store
from smq_storage.tables.pinned_reads import PinnedRead, PinnedReads
from support.data.sealed_topic import make_topic

LIFETIME = 600 * SECOND


class Pinned:
    """A keeper whose thread does nothing; ``now`` is its clock, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stopped = False
        self.store: Store = open_store("memory://")
        self.topic = make_topic(self.store, 1)
        self.keeper = PinKeeper(clock=lambda: self.now, check_seconds=1e6)
        numbers = itertools.count()
        self._reads = PinnedReads(
            self.store, lambda: f"pin-{next(numbers)}", lambda: int(self.now * SECOND), RetryPolicy(1.0)
        )

    def keep(self, ends_at: float = 1e9) -> PinnedRead:
        read = self._reads.begin(self.topic.name, self.topic.uid, "test", LIFETIME)
        self.keeper.keep(KeptPin(read, ends_at, lambda: self.stopped))
        return read

    def writer(self, read: PinnedRead) -> str | None:
        """Changes with each renewal; None if there is no pin."""
        found = read_pin(self.store, self.topic.name, self.topic.uid, read.pin_id)
        return found.pin.writer if found is not None else None


@pytest.fixture
def pinned() -> Pinned:
    return Pinned()


def test_it_is_renewed_in_each_third_of_its_lifetime(pinned: Pinned) -> None:
    read = pinned.keep()
    first = pinned.writer(read)
    pinned.now = 199
    pinned.keeper.check()
    assert pinned.writer(read) == first
    pinned.now = 200
    pinned.keeper.check()
    assert pinned.writer(read) not in (first, None)


def test_it_ends_by_release_once(pinned: Pinned) -> None:
    read, other = pinned.keep(), pinned.keep()
    assert pinned.keeper.release(read.pin_id)
    assert pinned.writer(read) is None and pinned.writer(other) is not None
    assert not pinned.keeper.release(read.pin_id)
    pinned.keeper.release_all()
    assert list_pins(pinned.store, pinned.topic.name, pinned.topic.uid) == []


def test_it_ends_with_its_session(pinned: Pinned) -> None:
    read = pinned.keep()
    pinned.stopped = True
    pinned.keeper.check()
    assert pinned.writer(read) is None and pinned.keeper.kept() == []


def test_it_ends_when_it_is_as_old_as_it_may_become(pinned: Pinned, caplog: pytest.LogCaptureFixture) -> None:
    read = pinned.keep(ends_at=3600)
    pinned.now = 3599
    pinned.keeper.check()
    assert pinned.writer(read) is not None
    pinned.now = 3600
    pinned.keeper.check()
    assert pinned.writer(read) is None and "as old as it may become" in caplog.text


def test_one_that_was_ended_is_kept_no_more_and_the_others_are(pinned: Pinned) -> None:
    ended, other = pinned.keep(), pinned.keep()
    delete_pin(pinned.store, pinned.topic.name, pinned.topic.uid, ended.pin_id)
    before = pinned.writer(other)
    pinned.now = 300
    pinned.keeper.check()
    assert pinned.keeper.kept() == [other.pin_id]
    assert pinned.writer(other) != before


def test_its_thread_renews() -> None:
    """The only test with the real thread."""
    from support.waiting import eventually

    one = Pinned()
    one.keeper = PinKeeper(clock=lambda: one.now, check_seconds=0.01)
    read = one.keep()
    first = one.writer(read)
    one.now = 300
    eventually(lambda: one.writer(read) not in (first, None))
    one.keeper.release_all()
