"""Retention deletes no file that a living pin covers, and the filer's time alone says which pin lives."""

from __future__ import annotations

from typing import Any, cast

import pytest

from smq_core.errors import PinExpired
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Topic
from smq_core.model.reference import Reference
from smq_operator.cleanup.filer_clock import ClockReading
from smq_operator.cleanup.orphaned_files import collect_orphaned_files
from smq_operator.cleanup.reader_pins import end_expired_pins, has_pins
from smq_operator.cleanup.retention import delete_files, read_consistent, remove_expired
from smq_operator.cleanup.unreferenced_uploads import collect_unreferenced_uploads
from smq_operator.runtime.cleanup_settings import CleanupSettings
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.stored_pins import list_pins, read_pin, renew_pin
from smq_storage.chunks.parquet_codec import chunk_schema, encode_chunk
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store
from support.data.clocks import NOW
from support.data.pins import LIFETIME, Readers
from support.data.sealed_topic import END, HOLDER, all_written, make_topic, segment_name, segments_with_files

SECOND, HOUR = 1_000_000, 3_600_000_000
YEAR = 365 * 24 * HOUR
AT = "default/t", "uid-1"
RETRY_POLICY = RetryPolicy(2.0)
STARTED = {(HOLDER.incarnation, segment_name(3))}
SETTINGS = CleanupSettings()


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
def topic(store: Store) -> Topic:
    """Three sealed segments, which have expired by their bytes."""
    return make_topic(store, 3, retention_bytes=0)


def created_at(store: Store, pin_id: str = "pin-0") -> int:
    found = read_pin(store, *AT, pin_id)
    assert found is not None
    return found.created_at


def remove_all(store: Store, topic: Topic, filer: int, leader: int = YEAR) -> None:
    remove_expired(
        store, topic, read_consistent(store, topic), [], STARTED, ClockReading(leader=leader, filer=filer), RETRY_POLICY
    )


def delete(store: Store, topic: Topic, filer: int, leader: int = 2 * YEAR) -> int:
    return delete_files(store, topic, ClockReading(leader=leader, filer=filer), SETTINGS, RETRY_POLICY)[1]


def test_files_stay_as_long_as_a_renewed_pin_covers_them(store: Store, topic: Topic) -> None:
    Readers(store).reads.begin(*AT, "job 1", 4 * HOUR)
    began = created_at(store)
    remove_all(store, topic, began)
    assert delete(store, topic, began + 2 * HOUR) == 0
    assert len(segments_with_files(store, topic)) == 3
    assert delete(store, topic, began + 4 * HOUR - 1) == 0
    assert delete(store, topic, began + 4 * HOUR) == 12
    assert not list_pins(store, *AT)


def test_files_go_when_the_pin_is_released(store: Store, topic: Topic) -> None:
    with Readers(store).reads.begin(*AT, "job 1", 4 * HOUR):
        began = created_at(store)
        remove_all(store, topic, began)
        assert delete(store, topic, began + 2 * HOUR) == 0
    assert delete(store, topic, began + 2 * HOUR) == 12


def test_a_pin_does_not_keep_what_was_removed_before_it(store: Store, topic: Topic) -> None:
    """So readers that follow each other do not keep files for ever."""
    remove_all(store, topic, 0)
    Readers(store).reads.begin(*AT, "job 1", 4 * HOUR)
    assert delete(store, topic, created_at(store) + HOUR) == 12
    assert len(list_pins(store, *AT)) == 1


def test_a_pin_that_is_renewed_for_ever_protects_nothing_beyond_the_cap(store: Store, topic: Topic) -> None:
    reader = Readers(store)
    read = reader.reads.begin(*AT, "job 1", 48 * HOUR)
    began = created_at(store)
    remove_all(store, topic, began)
    assert delete(store, topic, began + SETTINGS.max_pin_age_us - 1) == 0
    renew_pin(store, *AT, "pin-0", "w")
    assert delete(store, topic, began + SETTINGS.max_pin_age_us) == 12
    reader.now = 24 * HOUR
    with pytest.raises(PinExpired):
        read.keep()


@pytest.mark.parametrize("leader", [-YEAR, 0, 9 * YEAR])
def test_the_leaders_clock_does_not_end_a_pin(store: Store, topic: Topic, leader: int) -> None:
    Readers(store).reads.begin(*AT, "job 1", 4 * HOUR)
    began = created_at(store)
    remove_all(store, topic, began, leader=-2 * YEAR)
    assert delete(store, topic, began + 2 * HOUR, leader) == 0
    assert delete(store, topic, began + 4 * HOUR, leader) == 12


def test_one_wrong_clock_does_not_shorten_the_grace(store: Store, topic: Topic) -> None:
    """Neither that of the leader that removed the segment, nor that of the one that deletes files."""
    remove_all(store, topic, filer=YEAR, leader=0)
    assert delete(store, topic, YEAR + HOUR - 1, leader=5 * YEAR) == 0, "the leader that removed them was behind"
    assert delete(store, topic, 5 * YEAR, leader=HOUR - 1) == 0, "the filer's clock is ahead"
    assert delete(store, topic, YEAR + HOUR, leader=HOUR) == 12


class LateReader:
    """A store in which the reader renews its pin while the leader looks at it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_tail(self, path: str, nbytes: int) -> Any:
        found = self._store.get_tail(path, nbytes)
        renew_pin(self._store, *AT, "pin-0", "reader")
        return found


def test_a_pin_that_is_renewed_while_the_leader_ends_it_protects_its_files(store: Store, topic: Topic) -> None:
    Readers(store).reads.begin(*AT, "job 1", LIFETIME)
    began = created_at(store)
    remove_all(store, topic, began)
    assert delete(cast(Store, LateReader(store)), topic, began + 2 * HOUR) == 0
    assert len(segments_with_files(store, topic)) == 3
    found = read_pin(store, *AT, "pin-0")
    assert found is not None and not found.pin.ended


def test_pins_are_read_after_the_index(store: Store, topic: Topic) -> None:
    """A pin that is created between the two covers what is removed after it, so it must be seen."""
    calls: list[str] = []

    class Recording:
        def __getattr__(self, name: str) -> Any:
            method = getattr(store, name)

            def call(path: str, *args: Any) -> Any:
                calls.append(f"{name} {path}")
                return method(path, *args)

            return call

    remove_all(store, topic, 0)
    delete(cast(Store, Recording()), topic, YEAR)
    index, pins = f"get {paths.index_page(*AT, 0)}", f"list {paths.pins_folder(*AT)}"
    assert calls.index(index) < calls.index(pins) < next(n for n, it in enumerate(calls) if it.startswith("delete"))


def test_the_living_pins_are_counted_and_the_others_are_ended(store: Store, topic: Topic) -> None:
    readers = Readers(store)
    readers.reads.begin(*AT, "job 1", 2 * HOUR)
    readers.reads.begin(*AT, "job 2", HOUR)
    store.put(paths.pin(*AT, "broken"), b"{")
    store.put(f"{paths.pins_folder(*AT)}/notes.txt", b"no pin")
    began = max(created_at(store, pin_id) for pin_id in ("pin-0", "pin-2", "broken"))
    found = end_expired_pins(
        store, topic, ClockReading(leader=0, filer=began + HOUR), SETTINGS.max_pin_age_us, RETRY_POLICY
    )
    assert {pin.id for pin in found.pins} == {"pin-0", "broken"}
    assert HOUR <= found.oldest_age < HOUR + 10 * SECOND
    found = end_expired_pins(
        store, topic, ClockReading(leader=0, filer=began + 24 * HOUR), SETTINGS.max_pin_age_us, RETRY_POLICY
    )
    assert (found.pins, found.oldest_age) == ((), 0)
    assert not has_pins(store, topic)


def test_a_pin_that_nobody_could_renew_lives_on(store: Store, topic: Topic) -> None:
    """The filer did not answer while the pin's lifetime ended, or a new leader does not know whether it did."""
    with Readers(store).reads.begin(*AT, "job 1", HOUR):
        began = created_at(store)
        back = began + 5 * HOUR
        for now, living in ((back, 1), (back + HOUR - 1, 1), (back + HOUR, 0)):
            clocks = ClockReading(leader=0, filer=now, answers_since=back)
            assert len(end_expired_pins(store, topic, clocks, SETTINGS.max_pin_age_us, RETRY_POLICY).pins) == living


def test_uploads_that_pinned_segments_refer_to_stay(store: Store, topic: Topic) -> None:
    store.put(paths.uploaded_file(topic.uid, "a.parquet"), b"PAR1")
    reference = Reference(
        upload="a.parquet",
        etag="etag",
        first_row=0,
        rows=END,
        bytes=1,
        partition_min=0,
        partition_max=0,
        timestamp_min=0,
        timestamp_max=0,
    )
    info = ChunkInfo(segment=segment_name(0), first=0, rows=END, writer="w", nonce="r", reference=reference, appended=1)
    store.put(paths.chunk(*AT, segment_name(0), 0), encode_chunk([], info, chunk_schema()))
    with Readers(store).reads.begin(*AT, "job 1", 4 * HOUR):
        began = created_at(store)
        remove_all(store, topic, began)
        delete(store, topic, began + 2 * HOUR)
        assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 0
    assert delete(store, topic, began + 2 * HOUR) > 0
    assert collect_unreferenced_uploads(store, topic, NOW, all_written(store, topic)) == 1


def test_a_replaced_file_list_stays_while_there_is_a_pin(store: Store, topic: Topic) -> None:
    name = segment_name(0)
    old, new = paths.file_list_name(name, 0), paths.file_list_name(name, 1, "n")
    for each in (old, new):
        store.put(paths.file_list(*AT, each), b"{}")
    with Readers(store).reads.begin(*AT, "job 1"):
        assert sealed_index.name_file_list(store, *AT, name, "", new)
        assert collect_orphaned_files(store, topic, NOW).file_lists == 0
    assert collect_orphaned_files(store, topic, NOW).file_lists == 1
