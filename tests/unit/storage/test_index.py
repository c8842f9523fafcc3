"""The index of sealed segments: pages, idempotent appends, races, removal."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from smq_core.keyspace import KeyRange
from smq_core.model import Reason, SealedSegment
from smq_storage import index, paths
from smq_storage.index import PAGE_ENTRIES
from smq_storage.store import Store, open_store

AT = ("ns/t", "uid")


def entry(number: int) -> SealedSegment:
    return SealedSegment(
        f"t-{number}", number, KeyRange(0, 8), 100, (), (f"t-{number + 1}",), Reason.CREATE, Reason.SPLIT, 1, 2, bytes=9
    )


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def names(store: Store) -> list[str]:
    return [e.name for e in index.read(store, *AT)]


def test_entries_come_back_in_order_over_several_pages(store: Store) -> None:
    count = 2 * PAGE_ENTRIES + 10
    index.append(store, *AT, [entry(i) for i in range(PAGE_ENTRIES - 1)])
    index.append(store, *AT, [entry(i) for i in range(PAGE_ENTRIES - 1, count)])
    assert index.read(store, *AT) == [entry(i) for i in range(count)]
    assert [o.path for o in store.list(paths.index_folder(*AT))] == [paths.index_page(*AT, i) for i in range(3)]


def test_a_page_that_is_exactly_full_is_followed_by_another(store: Store) -> None:
    index.append(store, *AT, [entry(i) for i in range(PAGE_ENTRIES)])
    index.append(store, *AT, [entry(PAGE_ENTRIES)])
    assert len(names(store)) == PAGE_ENTRIES + 1


def test_appending_again_changes_nothing(store: Store) -> None:
    many = [entry(i) for i in range(PAGE_ENTRIES + 5)]
    index.append(store, *AT, many)
    before = [(o.path, o.size) for o in store.list(paths.index_folder(*AT))]
    index.append(store, *AT, many[:3])
    index.append(store, *AT, many)
    index.append(store, *AT, [many[0], many[0]])
    assert [(o.path, o.size) for o in store.list(paths.index_folder(*AT))] == before


def test_an_entry_given_twice_is_in_once(store: Store) -> None:
    index.append(store, *AT, [entry(1), entry(1)])
    assert names(store) == ["t-1"]


def test_leaders_that_append_at_once_lose_nothing_and_double_nothing(store: Store) -> None:
    def leader(number: int) -> None:
        for i in range(0, 300, 10):
            # each entry is appended by two of them
            index.append(store, *AT, [entry(i + j) for j in range(10) if (i + j) % 4 in (number, (number + 1) % 4)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(leader, range(4)))
    assert sorted(names(store)) == sorted(f"t-{i}" for i in range(300))


def test_removal_reaches_every_page_and_new_entries_still_go_to_the_last(store: Store) -> None:
    count = 2 * PAGE_ENTRIES + 10
    index.append(store, *AT, [entry(i) for i in range(count)])
    index.remove(store, *AT, {f"t-{i}" for i in range(PAGE_ENTRIES + 3)} | {"never-there"})
    assert names(store) == [f"t-{i}" for i in range(PAGE_ENTRIES + 3, count)]
    index.append(store, *AT, [entry(count)])
    assert names(store)[-1] == f"t-{count}"
    assert len(list(store.list(paths.index_folder(*AT)))) == 3


def test_removal_is_repeatable_and_of_nothing_does_nothing(store: Store) -> None:
    index.remove(store, *AT, ["t-1"])
    index.append(store, *AT, [entry(1), entry(2)])
    index.remove(store, *AT, ["t-1"])
    index.remove(store, *AT, ["t-1"])
    assert names(store) == ["t-2"]


def test_removal_does_not_lose_what_is_appended_at_the_same_time(store: Store) -> None:
    index.append(store, *AT, [entry(i) for i in range(50)])

    def add(_: int) -> None:
        for i in range(50, 100):
            index.append(store, *AT, [entry(i)])

    def take(_: int) -> None:
        for i in range(50):
            index.remove(store, *AT, [f"t-{i}"])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda work: work(0), [add, take]))
    assert names(store) == [f"t-{i}" for i in range(50, 100)]
