"""A pin is created before what is planned from is read, is renewed in time, and says when it has ended."""

from __future__ import annotations

from typing import Any, cast

import pytest

from smq_core.errors import Conflict, DataLost, InvalidRequest, PinExpired, UnknownTopic
from smq_core.model.entities import RemovedSegment, Topic
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.stored_pins import create_pin, delete_pin, end_pin, list_pins, read_pin, renew_pin
from smq_storage.object_store.store import Store, open_store
from support.data.pins import LIFETIME, Readers
from support.data.sealed_topic import END, ROWS, make_topic, segment_name

SECOND = 1_000_000
AT = "default/t", "uid-1"


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
def topic(store: Store) -> Topic:
    return make_topic(store, 3)


class RecordingStore:
    """Records the names of the methods that are called, with their paths, and can act between two of them."""

    def __init__(self, store: Store, before_read: Any = None) -> None:
        self._store, self.calls, self._before_read = store, list[tuple[str, str]](), before_read

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(path: str, *args: Any) -> Any:
            self.calls.append((name, path))
            if self._before_read is not None and name == "get":
                self._before_read(self.calls, path)
            return method(path, *args)

        return call


def remove(store: Store, number: int) -> None:
    sealed_index.remove(store, *AT, [RemovedSegment(name=segment_name(number), number=number, end=END, removed_at=1)])


def stored(store: Store, pin_id: str = "pin-0") -> Any:
    found = read_pin(store, *AT, pin_id)
    assert found is not None
    return found


def test_the_pin_is_created_before_what_is_planned_from_is_read(store: Store, topic: Topic) -> None:
    recording = RecordingStore(store)
    read = Readers(cast(Store, recording)).reads.begin(*AT, "job 1")
    names = [(name, path.rsplit("/", 1)[-1]) for name, path in recording.calls]
    pinned = names.index(("put_new", "pin-0.json"))
    assert ("get", "00000000.json") in names[pinned:] and ("get", "_layout.json") in names[pinned:]
    assert [it.name for it in read.files.segments()] == [segment_name(n) for n in range(4)]
    assert [it.end for it in read.files.segments()] == [END, END, END, None]


def test_a_pin_covers_what_is_removed_after_its_creation_and_not_what_was_removed_before(
    store: Store, topic: Topic
) -> None:
    remove(store, 0)
    Readers(store).reads.begin(*AT, "job 1")
    remove(store, 1)
    assert [stored(store).covers(n) for n in range(4)] == [False, True, True, True]


def test_what_is_removed_while_the_pin_is_created_is_covered_or_not_planned(store: Store, topic: Topic) -> None:
    def remove_at_once(calls: list[tuple[str, str]], path: str) -> None:
        if ("put_new", paths.pin(*AT, "pin-0")) in calls:
            recording._before_read = None
            remove(store, 0)

    recording = RecordingStore(store, remove_at_once)
    read = Readers(cast(Store, recording)).reads.begin(*AT, "job 1")
    assert segment_name(0) not in [it.name for it in read.files.segments()]
    assert stored(store).covers(0), "another reader of the index may have seen it, which does no harm"


def test_an_index_older_than_the_one_that_the_pin_was_made_with_is_read_again(store: Store, topic: Topic) -> None:
    page = paths.index_page(*AT, 0)
    before = bytes(store.get(page).data)
    remove(store, 0)
    after = bytes(store.get(page).data)

    def answer_out_of_date(calls: list[tuple[str, str]], path: str) -> None:
        if path == page and ("put_new", paths.pin(*AT, "pin-0")) in calls:
            readings = [name for name, at in calls if at == page]
            store.put(page, before if len(readings) == 2 else after)

    recording = RecordingStore(store, answer_out_of_date)
    read = Readers(cast(Store, recording)).reads.begin(*AT, "job 1")
    assert [it.name for it in read.files.segments()] == [segment_name(n) for n in (1, 2, 3)]


def test_a_pin_is_renewed_when_a_third_of_its_lifetime_is_over(store: Store, topic: Topic) -> None:
    readers = Readers(store)
    with readers.reads.begin(*AT, "job 1", LIFETIME) as read:
        first = stored(store)
        readers.now = LIFETIME // 3 - 1
        read.keep()
        assert stored(store).etag == first.etag
        readers.now += 1
        read.keep()
        renewed = stored(store)
        assert renewed.etag != first.etag
        assert renewed.created_at == first.created_at, "the age counts from the creation"
        read.keep()
        assert stored(store).etag == renewed.etag
    assert list_pins(store, *AT) == []


def test_reading_renews_the_pin(store: Store, topic: Topic) -> None:
    readers = Readers(store)
    with readers.reads.begin(*AT, "job 1", LIFETIME) as read:
        etag, rows = stored(store).etag, 0
        for _, table in read.read_range(read.files.segments()[0], 0, END):
            rows += table.num_rows
            readers.now += LIFETIME // 3
            assert rows == ROWS or stored(store).etag != etag
    assert rows == END


def test_a_pin_that_has_ended_is_not_renewed(store: Store, topic: Topic) -> None:
    readers = Readers(store)
    read = readers.reads.begin(*AT, "job 1", LIFETIME)
    assert end_pin(store, *AT, stored(store), "leader")
    readers.now = LIFETIME
    with pytest.raises(PinExpired, match="Begin the read again") as raised:
        read.keep()
    assert raised.value.pin == "pin-0"
    delete_pin(store, *AT, "pin-0")
    with pytest.raises(PinExpired):
        read.keep()


def test_either_a_renewal_or_the_end_wins(store: Store, topic: Topic) -> None:
    Readers(store).reads.begin(*AT, "job 1", LIFETIME)
    found = stored(store)
    renew_pin(store, *AT, "pin-0", "w")
    assert not end_pin(store, *AT, found, "leader")
    assert not stored(store).pin.ended
    assert end_pin(store, *AT, stored(store), "leader")
    delete_pin(store, *AT, "pin-0")
    assert not end_pin(store, *AT, found, "leader")


def test_a_file_that_is_gone_after_the_pin_has_ended_says_to_begin_again(store: Store, topic: Topic) -> None:
    read = Readers(store).reads.begin(*AT, "job 1")
    segment = read.files.segments()[0]
    store.delete(paths.chunk(*AT, segment.name, ROWS))
    with pytest.raises(DataLost, match="Read the index again"):
        list(read.read_range(segment, 0, END))
    end_pin(store, *AT, stored(store), "leader")
    with pytest.raises(PinExpired, match="Begin the read again"):
        list(read.read_range(segment, 0, END))


def test_a_pin_that_cannot_be_understood_covers_everything_until_it_is_too_old(store: Store, topic: Topic) -> None:
    store.put(paths.pin(*AT, "broken"), b"{")
    found = stored(store, "broken")
    assert found.covers(0) and "cannot be understood" in found.problem
    assert found.expires_at(7) == found.renewed_at + 7
    assert end_pin(store, *AT, found, "leader")


def test_a_time_of_creation_after_the_last_change_does_not_count(store: Store, topic: Topic) -> None:
    """A wrong one would let the pin live beyond the cap."""
    store.put(paths.pin(*AT, "p"), b'{"owner": "o", "lifetime": 9000000, "created_at": 9000000000000000}')
    found = stored(store, "p")
    assert found.created_at == found.renewed_at


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lifetime": 4 * SECOND}, "5 seconds or longer"),
        ({"owner": ""}, "1 to 200 printable characters"),
        ({"owner": "x" * 201}, "1 to 200 printable characters"),
        ({"pin_id": "../x"}, "a pin's id has"),
    ],
)
def test_invalid_pins_are_refused(store: Store, arguments: dict[str, Any], message: str) -> None:
    given = {"pin_id": "p", "owner": "o", "lifetime": LIFETIME} | arguments
    with pytest.raises(InvalidRequest, match=message):
        create_pin(store, *AT, **given, removed=(), writer="w")
    assert list_pins(store, *AT) == []


def test_an_id_in_use_and_an_unknown_topic_are_refused(store: Store, topic: Topic) -> None:
    create_pin(store, *AT, "p", "o", LIFETIME, (), "w")
    with pytest.raises(Conflict, match="choose another id"):
        create_pin(store, *AT, "p", "o", LIFETIME, (), "x")
    with pytest.raises(UnknownTopic):
        Readers(store).reads.begin("default/none", "uid-9", "job")
    assert list_pins(store, "default/none", "uid-9") == []
