"""Many tasks keep one pin: each renewal counts for all, and an ended pin explains what is gone."""

from __future__ import annotations

import itertools

import pytest

from pyspark_smq.planning.shared_pin import SharedPin, begin_read, check_pin
from smq.reading import StateLoader, TopicLocation
from smq_core.errors import DataLost, PinExpired, StoreDenied, StoreUnavailable
from smq_core.model.entities import SECOND
from smq_storage.catalog import stored_pins as reader_pins
from smq_storage.catalog.stored_pins import end_pin, read_pin, renew_pin, renew_shared_pin
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, StoreSettings, open_store
from smq_storage.tables.pinned_reads import PinnedReads
from support.data.sealed_topic import make_topic

LOST = DataLost("gone", segment="t-0-16-0", start=0, stop=1)


class Shared:
    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        topic = make_topic(self.store, 1)
        self.at = topic.name, topic.uid
        self.location = TopicLocation(topic=topic.name, uid=topic.uid, store=StoreSettings(url="memory://"))
        numbers = itertools.count()
        reads = PinnedReads(self.store, lambda: f"pin-{next(numbers)}", lambda: 0, RetryPolicy(1.0))
        self.id = reads.begin(*self.at, "test").pin_id

    def task(self, renews: bool = True) -> SharedPin:
        return SharedPin(self.store, self.location, self.id, renews)

    def writer(self) -> str:
        found = read_pin(self.store, *self.at, self.id)
        assert found is not None
        return found.pin.writer

    def end(self) -> None:
        found = read_pin(self.store, *self.at, self.id)
        assert found is not None and end_pin(self.store, *self.at, found, "leader")


@pytest.fixture
def shared() -> Shared:
    return Shared()


def test_a_read_that_fails_while_it_is_planned_leaves_no_pin(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    with StateLoader(shared.location, shared.store, files_only=True) as loader:
        state, pinned = begin_read(shared.store, shared.location, loader, "test")
        assert pinned is not None and state.files == pinned.files
        pinned.release()
        monkeypatch.setattr(StateLoader, "complete", lambda self, files: (_ for _ in ()).throw(StoreUnavailable("no")))
        with pytest.raises(StoreUnavailable):
            begin_read(shared.store, shared.location, loader, "test")
    assert [it.id for it in reader_pins.list_pins(shared.store, *shared.at)] == [shared.id]


def test_whoever_may_not_write_a_pin_reads_without_one_and_gets_a_warning(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise StoreDenied("the key may not write there")

    monkeypatch.setattr(shared.store, "put_new", refuse)
    with StateLoader(shared.location, shared.store, files_only=True) as loader:
        state, pinned = begin_read(shared.store, shared.location, loader, "test")
    assert pinned is None and state.segments()
    (record,) = caplog.records
    assert "without a pin" in record.message and "may not write there" in record.message


def test_each_task_renews_it_once_when_it_begins(shared: Shared) -> None:
    writers = [shared.writer()]
    for _ in range(2):
        task = shared.task()
        task.keep()
        writers.append(shared.writer())
        task.keep()
        assert shared.writer() == writers[-1]
    assert len(set(writers)) == 3


def test_a_task_renews_it_within_each_third_of_its_lifetime(shared: Shared) -> None:
    now = [0.0]
    task = SharedPin(shared.store, shared.location, shared.id, True, 30 * SECOND, lambda: now[0])
    task.keep()
    first = shared.writer()
    now[0] = 9.9
    task.keep()
    assert shared.writer() == first
    now[0] = 10.0
    task.keep()
    assert shared.writer() != first


def test_whoever_planned_the_read_may_keep_it_alone(shared: Shared) -> None:
    before = shared.writer()
    shared.task(renews=False).keep()
    assert shared.writer() == before


def test_an_ended_pin_is_the_reason_for_what_is_gone(shared: Shared) -> None:
    with pytest.raises(DataLost):
        shared.task(renews=False).explain(LOST)
    check_pin(shared.store, shared.location, shared.id)
    shared.end()
    with pytest.raises(PinExpired):
        check_pin(shared.store, shared.location, shared.id)
    with pytest.raises(PinExpired):
        shared.task().keep()
    with pytest.raises(PinExpired):
        shared.task(renews=False).explain(LOST)


def test_without_a_pin_the_loss_is_the_reason(shared: Shared) -> None:
    task = SharedPin(shared.store, shared.location, None, True)
    task.keep()
    with pytest.raises(DataLost):
        task.explain(LOST)


def test_the_renewal_of_another_task_at_the_same_moment_is_enough(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = reader_pins.read_pin
    others = iter(["other"])

    def read_then_other(store: Store, *at: str) -> object:
        found = read(store, *at)  # type: ignore[arg-type]
        for writer in others:
            renew_pin(store, *shared.at, shared.id, writer)
        return found

    monkeypatch.setattr(reader_pins, "read_pin", read_then_other)
    renew_shared_pin(shared.store, *shared.at, shared.id, "mine")
    assert shared.writer() == "other"


def test_a_pin_that_the_leader_ends_at_the_same_moment_has_ended(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = reader_pins.read_pin
    ends = iter([True])

    def read_then_end(store: Store, *at: str) -> object:
        found = read(store, *at)  # type: ignore[arg-type]
        for _ in ends:
            assert found is not None and end_pin(store, *shared.at, found, "leader")
        return found

    monkeypatch.setattr(reader_pins, "read_pin", read_then_end)
    with pytest.raises(PinExpired):
        renew_shared_pin(shared.store, *shared.at, shared.id, "mine")
