"""A read of a planned range goes on where the messages are now, and says which are gone, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from smq.reading import RangeReader, TopicLocation, load_state
from smq_core.errors import DataLost, Unavailable, UnknownTopic
from smq_core.model.entities import RemovedSegment, Topic
from smq_storage.catalog import paths, sealed_index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store, StoreSettings, open_store
from smq_storage.tables.file_lists import write_file_list
from smq_storage.tables.segment_files import StoredSegment
from support.data.sealed_topic import END, ROWS, make_topic, segment_name
from support.data.stored_segment import file_list_of_chain


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
def topic(store: Store) -> Topic:
    return make_topic(store, 2)


def reader(store: Store, topic: Topic, **options: object) -> RangeReader:
    location = TopicLocation(topic=topic.name, uid=topic.uid, store=StoreSettings(url="memory://"))
    return RangeReader(location, store, **options)  # type: ignore[arg-type]


def living(topic: Topic, number: int) -> StoredSegment:
    """As it was planned before it was sealed."""
    return StoredSegment(topic=topic.name, uid=topic.uid, name=segment_name(number))


def offsets(found: Iterator[tuple[int, pa.Table]]) -> list[int]:
    return [first + row for first, table in found for row in range(table.num_rows)]


@pytest.mark.parametrize(("start", "stop"), [(0, END), (3, 7), (ROWS, 2 * ROWS), (END - 1, END), (4, 4)])
def test_exactly_the_range_of_a_segment_that_was_sealed_since(
    store: Store, topic: Topic, start: int, stop: int
) -> None:
    assert offsets(reader(store, topic).read(living(topic, 0), start, stop)) == list(range(start, stop))


def test_messages_after_the_end_are_lost(store: Store, topic: Topic) -> None:
    found = reader(store, topic).read(living(topic, 0), 3, END + 4)
    with pytest.raises(DataLost, match="were lost with all of its replicas") as caught:
        for first, table in found:
            last = first + table.num_rows
    assert last == END and (caught.value.start, caught.value.stop) == (END, END + 4)
    assert offsets(reader(store, topic, on_loss="skip").read(living(topic, 0), 3, END + 4)) == list(range(3, END))


def test_a_file_that_is_gone_is_a_loss(store: Store, topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    store.delete(paths.chunk(topic.name, topic.uid, segment_name(0), ROWS))
    with pytest.raises(DataLost, match=f"from offset {ROWS} on"):
        offsets(reader(store, topic).read(living(topic, 0), 0, END))
    assert offsets(reader(store, topic, on_loss="skip").read(living(topic, 0), 0, END)) == list(range(ROWS))
    assert "are left out" in caplog.text


def test_a_removed_segment_is_lost_with_that_reason(store: Store, topic: Topic) -> None:
    removed = segment_name(0)
    begun = reader(store, topic).read(living(topic, 0), 0, END)
    first, table = next(begun)
    sealed_index.remove(store, topic.name, topic.uid, [RemovedSegment(name=removed, number=0, end=END, removed_at=0)])
    for listed in store.list(paths.segment_folder(topic.name, topic.uid, removed)):
        store.delete(listed.path)
    with pytest.raises(DataLost, match="retention has removed") as caught:
        offsets(begun)
    assert (caught.value.segment, caught.value.start, caught.value.stop) == (removed, first + table.num_rows, END)


def test_files_that_were_replaced_since_the_plan(store: Store, topic: Topic) -> None:
    """As by a compaction: the plan's file list names files that are gone, and the index names another one."""
    (entry, _) = sealed_index.read(store, topic.name, topic.uid)
    planned = StoredSegment.of(topic.name, topic.uid, entry)
    file_list = file_list_of_chain(ChunkChain(store, topic.name, topic.uid, entry.name))
    assert file_list is not None
    compacted = f"{paths.segment_folder(topic.name, topic.uid, entry.name)}/compacted.parquet"
    (before, *others) = file_list.files
    store.put_new(compacted, store.get(before.path).data)
    etag = store.get(compacted).etag
    store.delete(before.path)
    files = (replace(before, path=compacted, etag=etag), *others)
    name = write_file_list(store, topic.name, topic.uid, replace(file_list, files=files))
    assert sealed_index.name_file_list(store, topic.name, topic.uid, entry.name, "", name)
    assert offsets(reader(store, topic).read(planned, 2, END)) == list(range(2, END))


def test_a_segment_that_never_was(store: Store, topic: Topic) -> None:
    with pytest.raises(DataLost, match="has no segment"):
        offsets(reader(store, topic).read(living(topic, 77), 0, 3))


def test_messages_that_do_not_come_are_unavailable_after_a_while(store: Store, topic: Topic) -> None:
    with pytest.raises(Unavailable, match="message 0 of t-0-16-2 was not in its files, nor at a replica"):
        offsets(reader(store, topic, give_up_after=0.1).read(living(topic, 2), 0, 1))


def test_a_deleted_topic(store: Store, topic: Topic) -> None:
    store.delete(paths.layout(topic.name, topic.uid))
    with pytest.raises(UnknownTopic):
        offsets(reader(store, topic).read(living(topic, 2), 0, 1))


def test_columns_come_in_the_order_that_is_wanted(store: Store, topic: Topic) -> None:
    for columns in (["value"], ["key", "partition"], []):
        tables = [table for _, table in reader(store, topic).read(living(topic, 0), 0, END, columns)]
        assert all(table.column_names == columns for table in tables)
        assert sum(table.num_rows for table in tables) == END


def test_the_state_of_a_topic_without_brokers(store: Store, topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    location = TopicLocation(topic=topic.name, uid=topic.uid, store=StoreSettings(url="memory://"))
    state = load_state(location, store)
    names = [segment_name(n) for n in range(3)]
    assert list(state.segments()) == names and state.ends == {names[0]: END, names[1]: END, names[2]: 0}
    assert state.sealed == set(names[:2]) and not state.flushed and not state.replicas(names[0])
    assert "no broker reports" in caplog.text
    caplog.clear()
    assert load_state(location, store, files_only=True) == state and "no broker" not in caplog.text
